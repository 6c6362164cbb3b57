"""Which loaded objects may carry CPython: by their names, and by what they export."""

from __future__ import annotations

from gdbheap.allocators.runtimes import file_name, not_python
from gdbheap.errors import NotAPython, Unsupported
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.target import Target
from gdbheap.targets.unseen_files import about

TYPE = "PyType_Type"
# Data of every CPython, of 3.7 and later, of 3.11 and later; and a function: a program that is linked at a fixed
# address may have copies of its library's data, under their names, but never of a function.
EXPORTED = (TYPE, "_PyRuntime", "Py_Version", "Py_InitializeEx")


def python_first(target: Target) -> list[LoadedObject]:
    """The loaded objects, those named like Python first, its extension modules next."""

    def rank(loaded: LoadedObject) -> int:
        name = loaded.path.rsplit("/", 1)[-1]
        return 0 if name.startswith(("python", "libpython")) else 1 if "python" in name else 2

    return sorted(target.objects, key=rank)


def exports(loaded: LoadedObject) -> list[str]:
    """The names of CPython's own that a loaded object exports."""
    return [name for name in EXPORTED if loaded.exported(name)]


def carriers(target: Target) -> list[LoadedObject]:
    """The loaded objects that may carry CPython, the likeliest first: those that export its types, else those named
    like Python."""
    exporting = [loaded for loaded in python_first(target) if loaded.exported(TYPE)]
    if exporting:
        return sorted(exporting, key=lambda loaded: -len(exports(loaded)))
    return [loaded for loaded in python_first(target) if "python" in file_name(loaded.path)]


def need_python(target: Target) -> None:
    """Raises NotAPython for a target that has no loaded object which may carry CPython, Unsupported where one may that
    is not to be seen."""
    if not carriers(target):
        if any("python" in file_name(file.path) for file in target.unseen):
            raise Unsupported(f"Python is here and not to be seen, because {about(target.unseen)}")
        if target.unseen:
            raise NotAPython(f"no Python is to be seen, because {about(target.unseen)}")
        raise NotAPython(
            not_python(target)
            or "there is no Python in this process: no loaded object is named python or exports PyType_Type"
        )
