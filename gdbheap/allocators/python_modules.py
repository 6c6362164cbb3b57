"""Find the loaded objects that may contain CPython, by their names and their exported symbols."""

from __future__ import annotations

from gdbheap.allocators.runtimes import file_name, not_python
from gdbheap.errors import NotAPython, Unsupported
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.target import Target
from gdbheap.targets.unseen_files import about

TYPE = "PyType_Type"
# EXPORTED: a variable of every CPython, one of 3.7 and later, one of 3.11 and later, and a function. The function is
# needed, because a program that is linked at a fixed address may contain copies of a library's variables, under the
# same names, but never of a function.
EXPORTED = (TYPE, "_PyRuntime", "Py_Version", "Py_InitializeEx")


def python_first(target: Target) -> list[LoadedObject]:
    """Return all loaded objects: names that begin with "python" first, then names that contain "python", then all
    others.
    """

    def rank(loaded: LoadedObject) -> int:
        name = loaded.path.rsplit("/", 1)[-1]
        return 0 if name.startswith(("python", "libpython")) else 1 if "python" in name else 2

    return sorted(target.objects, key=rank)


def exports(loaded: LoadedObject) -> list[str]:
    """Return the symbols of CPython, among the names in ``EXPORTED``, that a loaded object exports."""
    return [name for name in EXPORTED if loaded.exported(name)]


def python_modules(target: Target) -> list[LoadedObject]:
    """Return the loaded objects that may contain CPython, the likeliest first.

    An object may contain CPython if it exports ``PyType_Type``. If no object exports it, an object may contain CPython
    if its name contains "python"."""
    exporting = [loaded for loaded in python_first(target) if loaded.exported(TYPE)]
    if exporting:
        return sorted(exporting, key=lambda loaded: -len(exports(loaded)))
    return [loaded for loaded in python_first(target) if "python" in file_name(loaded.path)]


def need_python(target: Target) -> None:
    """Raise NotAPython if no loaded object of the target can contain CPython.

    Raises Unsupported if a file named like Python cannot be read."""
    if not python_modules(target):
        if any("python" in file_name(file.path) for file in target.unseen):
            raise Unsupported(f"gdbheap cannot read the Python in this process, because {about(target.unseen)}")
        if target.unseen:
            raise NotAPython(f"no Python was found, because {about(target.unseen)}")
        raise NotAPython(
            not_python(target)
            or "there is no Python in this process: no loaded object is named python or exports PyType_Type"
        )
