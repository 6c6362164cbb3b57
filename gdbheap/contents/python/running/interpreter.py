"""Find the CPython of a target, whichever allocator its objects are in, with or without symbols."""

from __future__ import annotations

from functools import cached_property

from gdbheap.allocators.python_modules import exports, need_python, python_modules
from gdbheap.contents.python.running.threads import ThreadStates
from gdbheap.errors import Fault, Unsupported, one_line
from gdbheap.layout.cpython import Build, Release, exported_version, find_release, find_type, with_own
from gdbheap.layout.debug_offsets import DebugOffsets, find_debug_offsets, has_cookie, read_debug_offsets, version_text
from gdbheap.layout.facts import Facts
from gdbheap.layout.shipped_tables import table
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.target import Target

# The most fields that a warning names, and the most fields for which a fact is added.
MAX_FIELDS_NAMED, MAX_FIELDS_LISTED = 4, 20


class Interpreter:
    """The interpreter of one target. Raises NotAPython or Unsupported.

    ``module``: the loaded object that contains it.
    ``release``: the offsets of its objects' fields.
    ``warnings``: warnings about these offsets.

    Arguments:
    ``named``: the loaded object in whose data pymalloc was found, or None.
    ``tagged``: whether pages of mimalloc show that the build is free-threaded.
    """

    def __init__(self, target: Target, facts: Facts, named: LoadedObject | None = None, tagged: bool = False) -> None:
        need_python(target)
        self._target = target
        self._facts = facts
        self.warnings: list[str] = []
        self.module, source = _find_module(target, named)
        place = find_type(target.space, self.module)
        confirmed = None if place is None else f"PyType_Type at {place[0]:#x} is its own type"
        facts.add("interpreter", one_line(self.module.path), source, confirmed)
        own = self._read_own()
        build = Build(own, place[1] if place is not None else 0, tagged)
        self.release = self._find_release(build)

    @property
    def is_free_threaded(self) -> bool:
        """Whether the interpreter was built without the GIL (PEP 703)."""
        return self.release.is_free_threaded

    @cached_property
    def threads(self) -> ThreadStates:
        """The thread states of all interpreters, including subinterpreters. Raises Unsupported."""
        try:
            return ThreadStates(self._target, self.module, self.release)
        except Fault as fault:
            raise Unsupported(f"threads cannot be read: no memory at {fault.args[0]:#x}") from fault

    def _read_own(self) -> DebugOffsets | None:
        """Return the table of offsets that the interpreter publishes (3.13 and later).

        Return None if there is none. Return None also, and add a warning, if its offsets are impossible.
        """
        space, version = self._target.space, exported_version(self._target, self.module)
        place = find_debug_offsets(space, self.module)
        if place is None or (not has_cookie(space, place[0]) and not _publishes(version)):
            return None
        address, source = place
        try:
            own = read_debug_offsets(space, address)
            if version is not None and own.version != version:
                raise ValueError(f"its version is {own.release}, but Py_Version is {version_text(version)}")
        except ValueError as error:
            self._facts.add("_Py_DebugOffsets", "rejected", f"{source}: {error}")
            self.warnings.append(
                f"the interpreter's own table of offsets (_Py_DebugOffsets at {address:#x}) is damaged, so gdbheap "
                f"uses its own table: {error}"
            )
            return None
        self._facts.add("_Py_DebugOffsets", address, source, f"{len(own.fields)} fields, each where it can be")
        return own

    def _find_release(self, build: Build) -> Release:
        """Return the release. The offsets that the interpreter publishes replace those of the shipped table. Raises
        Unsupported.
        """
        release = find_release(self._target, self.module, self._facts, build)
        shipped = f"as of {release.major}.{release.minor}"
        source = "shipped table, from DWARF of a build of that release"
        if build.own is None:
            self._facts.add("object layouts", shipped, source)
            return release
        release, differ = with_own(release, build.own)
        same = f"{len(build.own.fields) - len(differ)} fields are the same in _Py_DebugOffsets"
        self._facts.add("object layouts", shipped, source, same)
        if differ:
            self._tell(release, differ)
        return release

    def _tell(self, release: Release, differ: dict[str, tuple[int, int]]) -> None:
        """Add facts and a warning about fields whose published offsets differ from the offsets in gdbheap's table."""
        for name, (own, shipped) in list(differ.items())[:MAX_FIELDS_LISTED]:
            self._facts.add(f"offset of {name}", own, f"_Py_DebugOffsets; the shipped table has {shipped}")
        named = ", ".join(list(differ)[:MAX_FIELDS_NAMED])
        others = f" and {len(differ) - MAX_FIELDS_NAMED} others" if len(differ) > MAX_FIELDS_NAMED else ""
        self.warnings.append(
            f"the interpreter's own table of offsets (_Py_DebugOffsets) differs from gdbheap's table for "
            f"{release.major}.{release.minor} in {named}{others}: gdbheap uses the interpreter's table, although it "
            "may be damaged (or the build is patched)"
        )


def _publishes(version: int | None) -> bool:
    """Return whether an interpreter of this version (PY_VERSION_HEX) publishes a table of offsets; False if it is
    unknown."""
    first = min(tuple(map(int, text.split("."))) for text in table("debug_offsets")["releases"])
    return version is not None and (version >> 24, version >> 16 & 255) >= first


def _find_module(target: Target, named: LoadedObject | None) -> tuple[LoadedObject, str]:
    """Return the loaded object that contains CPython, and a phrase that says how it was found.

    The object in whose data pymalloc was found is preferred, then the object with the most of CPython's exports.
    Without exports, it is the object whose data contains the type ``type``, or else an object that is named like
    Python.
    """
    if named is not None:
        return named, "its data contains pymalloc's usedpools"
    candidates = python_modules(target)
    found = exports(candidates[0])
    if found:
        return candidates[0], f"it exports {', '.join(found)}"
    for loaded in candidates:
        if find_type(target.space, loaded) is not None:
            return loaded, "its data contains PyType_Type"
    return candidates[0], "by its name"
