"""The release of an interpreter, and the layout of its objects: the offsets of the fields in that release.

The fields of ``PyTypeObject`` used here have the same offsets from 2.7 to 3.15 (checked against the DWARF of all
releases). So types can be recognised before the version is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

from gdbheap._native import Space
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.debug_offsets import DebugOffsets, version_text, windows
from gdbheap.layout.facts import Facts
from gdbheap.layout.shipped_tables import table
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.target import Target

TP_NAME = 24
TP_BASICSIZE = 32
TP_ITEMSIZE = 40
TP_DEALLOC = 48
TP_FLAGS = 168
TP_MEMBERS = 240
TP_BASE = 256
TP_DICT = 264
TP_WEAKLISTOFFSET = 208
TP_DICTOFFSET = 288
TP_BASES = 336
TP_MRO = 344
OB_TYPE = 8
OB_SIZE = 16
# The size of PyObject, which consists of ob_refcnt and ob_type.
OBJECT_HEAD = 16
MODULE_DICT = 16

FLAG_MANAGED_DICT = 1 << 4
FLAG_HEAP_TYPE = 1 << 9
FLAG_GC = 1 << 14
FLAG_INT = 1 << 24
FLAG_LIST = 1 << 25
FLAG_TUPLE = 1 << 26
FLAG_BYTES = 1 << 27
FLAG_UNICODE = 1 << 28
FLAG_DICT = 1 << 29
FLAG_EXCEPTION = 1 << 30
FLAG_TYPE = 1 << 31
# Types whose objects begin with plain numbers after their head.
FLAGS_PLAIN = FLAG_INT | FLAG_BYTES | FLAG_UNICODE

_NAME = re.compile(r"python(\d)\.(\d+)")
# Extra bytes before ob_type: none, or 16 for two links (Py_TRACE_REFS) or for a thread's id and two reference counts
# (free-threaded builds).
HEADS = (0, 16)
LARGER_HEAD = "PyType_Type has its type pointer 16 bytes later than usual"
# Since this release, builds with Py_TRACE_REFS have the usual head.
HEADS_ARE_PLAIN = (3, 13)
# PyObject of free-threaded builds, in all releases: the offsets of its two counts, and how many low bits of the second
# count are flags.
OB_REF_LOCAL, OB_REF_SHARED, SHARED_COUNT_SHIFT = 12, 16, 2
# Bounds for sizeof(PyHeapTypeObject) in all releases and builds, with a margin; then sizeof(PyMemberDef).
CLASS_SIZES = (800, 1200)
MEMBER_SIZE = 40


@dataclass(frozen=True)
class Release:
    """An interpreter's release and the layout of its objects.

    ``text``: the release as text, such as ``3.11.2`` or ``3.11``.
    ``fields``: the table's entries for the release, mostly offsets and sizes in bytes.
    ``added``: the bytes that an object's head has in addition to ``ob_refcnt`` and ``ob_type``.
    ``traced``: the build has Py_TRACE_REFS, and the added bytes are two links before ``ob_refcnt``.
    """

    text: str
    major: int
    minor: int
    fields: dict[str, Any]
    added: int = 0
    traced: bool = False

    @property
    def is_free_threaded(self) -> bool:
        """Whether the interpreter was built to run without its global lock."""
        return bool(self.added) and not self.traced

    @property
    def ob_refcnt(self) -> int:
        """The offset in bytes of an object's only reference count. Objects of free-threaded builds have two counts
        instead.
        """
        return self.added if self.traced else 0

    def reference_count(self, space: Space, address: int) -> int:
        """Return the reference count that an object's head states; for an immortal object, some large number.

        Raises Fault. In free-threaded builds it is the sum of two counts (PEP 703). One is for the thread that created
        the object. The other, ``ob_ref_shared`` without its flags, is for all other threads.
        """
        if not self.is_free_threaded:
            return space.u32(address + self.ob_refcnt)
        machine = space.machine
        (shared,) = machine.structure("N").unpack(space.read(address + OB_REF_SHARED, machine.word))
        return space.u32(address + OB_REF_LOCAL) + (int(shared) >> SHARED_COUNT_SHIFT)

    @property
    def names(self) -> dict[str, str]:
        """The names of types in this release, if later releases call them differently: {later name: this release's
        name}.
        """
        return dict(self.fields.get("names") or {})

    def at(self, offset: int) -> int:
        """Return the offset in bytes of a field in this build.

        ``offset``: the offset in builds whose object head is as long as usual.
        """
        return offset + self.added

    def __getitem__(self, name: str) -> int:
        """Return the offset or size called ``name``.

        Raises Unsupported if this release has no such field. Raises KeyError for a name that no release has.
        """
        offset = self.fields.get(name)
        if offset is None:
            _need_known(name)
            raise Unsupported(f"gdbheap's tables have no {name} for Python {self.text}")
        return int(offset)

    def get(self, name: str) -> int | None:
        """Return the offset or size called ``name``, or None if this release has no such field.

        Raises KeyError for a name that no release has.
        """
        offset = self.fields.get(name)
        if offset is None:
            _need_known(name)
            return None
        return int(offset)

    def offsets(self, name: str) -> list[int]:
        """Return the list of offsets called ``name``, empty if this release has none.

        Raises KeyError for a name that no release has.
        """
        _need_known(name)
        return list(self.fields.get(name) or [])


@cache
def field_names() -> frozenset[str]:
    """Return the names of all fields that any release in the table has."""
    tables = table("cpython")
    changes = [tables[kind]["releases"].values() for kind in ("traced", "free_threaded")]
    rows = [*tables["releases"].values(), *chain.from_iterable(changes)]
    return frozenset(chain.from_iterable(rows))


def _need_known(name: str) -> None:
    """Raise KeyError for a name that no release has. An unknown name is a mistake in gdbheap's code, not in
    the target.
    """
    if name not in field_names():
        raise KeyError(f"no release in tables/cpython.json has a field called {name}")


@dataclass(frozen=True)
class Build:
    """The facts about an interpreter's build that are known before its release.

    ``own``: the table of offsets that the interpreter publishes (None up to 3.12).
    ``added``: how many bytes later the fields of its types lie than in usual builds.
    ``tagged``: whether tags of mimalloc's pages show a free-threaded build.
    """

    own: DebugOffsets | None = None
    added: int = 0
    tagged: bool = False


def find_release(target: Target, module: LoadedObject, facts: Facts, build: Build) -> Release:
    """Return the release of the interpreter in ``module``, with the layout from the shipped table; add it to ``facts``.

    The version is ``Py_Version`` if that is exported. Otherwise it is the version in the interpreter's own table, or
    else the version in a file's name. Raises Unsupported if all three are missing, or if the shipped table lacks the
    release.
    """
    text, source, confirmed = _find_version(target, module, build.own)
    major, minor = (int(part) for part in text.split(".")[:2])
    facts.add("python", text, source, confirmed)
    fields = table("cpython")["releases"].get(f"{major}.{minor}")
    if fields is None:
        known = ", ".join(table("cpython")["releases"])
        raise Unsupported(f"gdbheap does not know the objects of Python {text} (it knows {known})")
    if build.own is not None and build.own.free_threaded:
        return _without_lock(text, major, minor, facts, "its flag in _Py_DebugOffsets")
    if build.tagged:
        return _without_lock(
            text, major, minor, facts, "objects lie in mimalloc's pages, and tags of the pages show the kind of objects"
        )
    if build.added and (major, minor) >= HEADS_ARE_PLAIN:
        return _without_lock(text, major, minor, facts, LARGER_HEAD)
    if build.added:
        facts.add("Py_TRACE_REFS", "yes", LARGER_HEAD)
        return _with_links(text, major, minor, fields)
    return Release(text, major, minor, fields)


def _find_version(target: Target, module: LoadedObject, own: DebugOffsets | None) -> tuple[str, str, str | None]:
    """Return (version, its source, a second source) of the interpreter. Raises Unsupported if no source has a version.

    The second source confirms or contradicts the version, or is None.
    """
    exported, named = exported_version(target, module), _named_version(target, module)
    published = own.release if own is not None else None
    told = version_text(exported) if exported is not None else published
    if told is None and named is None:
        raise Unsupported("the version of Python is unknown: Py_Version cannot be read, and no file is named pythonX.Y")
    if told is None:
        return named or "", "the file's name", None
    source = "Py_Version" if exported is not None else "_Py_DebugOffsets"
    if named is not None and f"{told}.".startswith(f"{named}."):
        return told, source, "file name"
    return told, source, None if named is None else f"the file is named {named}"


def with_own(release: Release, own: DebugOffsets) -> tuple[Release, dict[str, tuple[int, int]]]:
    """Return the release with the interpreter's published offsets, and the offsets that differ from the shipped table.

    Only fields that the shipped table has for this release are replaced. The differences are {name of the field:
    (published offset, shipped offset)}.
    """
    common = {name: at for name, at in own.fields.items() if release.fields.get(name) is not None}
    differ = {name: (at, release.fields[name]) for name, at in common.items() if release.fields[name] != at}
    return replace(release, fields={**release.fields, **common}), differ


def find_type(space: Space, module: LoadedObject) -> tuple[int, int] | None:
    """Return the address of the type ``type`` in an interpreter's data, and how many extra bytes its objects have
    before ``ob_type``.

    Return None if it is not found. No symbol is needed: ``type`` is its own type, and has the sizes of PyHeapTypeObject
    and PyMemberDef.
    """
    known = module.symbol("PyType_Type")
    places = [(known, added) for added in HEADS] if known is not None else _own_types(space, module)
    return next((place for place in places if _is_type(space, *place)), None)


def _own_types(space: Space, module: LoadedObject) -> Iterator[tuple[int, int]]:
    """Yield (address, extra bytes before ``ob_type``) of each place in the data that may be an object of its own type.

    Its ``ob_type`` points to itself. The extra bytes are one of HEADS.
    """
    for window, raw in windows(space, module):
        words = space.machine.words_of(raw)
        for added in HEADS:
            head = window - OB_TYPE - added
            yield from ((word, added) for index, word in enumerate(words) if word == head + space.machine.word * index)


def _is_type(space: Space, address: int, added: int) -> bool:
    try:
        fields = (OB_TYPE, TP_BASICSIZE, TP_ITEMSIZE, TP_FLAGS)
        kind, size, item, flags = (space.word(address + added + at) for at in fields)
    except (Fault, OverflowError):
        return False
    fits = CLASS_SIZES[0] <= size <= CLASS_SIZES[1] and item == MEMBER_SIZE
    return kind == address and fits and bool(flags & FLAG_TYPE)


def _with_links(text: str, major: int, minor: int, fields: dict[str, Any]) -> Release:
    """Return the release for a build with Py_TRACE_REFS, whose objects begin with two links.

    ``fields``: the table's entries for usual builds.
    """
    changes = table("cpython")["traced"]
    own = changes["releases"].get(f"{major}.{minor}", {})
    return Release(text, major, minor, {**_moved(fields, changes["added"]), **own}, changes["added"], traced=True)


def _moved(fields: dict[str, Any], added: int) -> dict[str, Any]:
    """Return ``fields`` with ``added`` bytes added to each offset that is counted from the start of an object.

    Up to 3.10 a frame is an object, so offsets in frames are raised too.
    """
    tables = table("cpython")
    counted = set(tables["counted_from_objects"])
    if fields.get("frame_data") is None:
        counted.update(tables["counted_from_frames"])

    def moved(at: int | list[int]) -> int | list[int]:
        return [one + added for one in at] if isinstance(at, list) else at + added

    return {name: moved(at) if name in counted and at is not None else at for name, at in fields.items()}


def _without_lock(text: str, major: int, minor: int, facts: Facts, source: str) -> Release:
    """Return the release with the object layout of free-threaded builds. Raises Unsupported if that layout is
    unknown."""
    tables = table("cpython")
    changes = tables["free_threaded"]
    own = changes["releases"].get(f"{major}.{minor}")
    if own is None:
        raise Unsupported(
            f"gdbheap does not know a free-threaded Python {text} (it knows {', '.join(changes['releases'])})"
        )
    added = int(changes["added"])
    fields = _moved(tables["releases"][f"{major}.{minor}"], added)
    facts.add("free-threaded", "yes", source)
    return Release(text, major, minor, {**fields, **own}, added)


def exported_version(target: Target, module: LoadedObject) -> int | None:
    """Return the value of ``Py_Version`` (3.11 and later; 0x030B02F0 is 3.11.2), or None if no object exports it.

    The symbol in the interpreter's own ``module`` is tried before the symbols of other loaded objects."""
    for loaded in [module] + target.objects:
        address = loaded.symbol("Py_Version")
        if address is not None:
            try:
                value = target.space.u32(address)
            except Fault:
                continue
            if value >> 24 in (2, 3):
                return value
    return None


def _named_version(target: Target, module: LoadedObject) -> str | None:
    for loaded in [module] + target.objects:
        match = _NAME.search(loaded.path.rsplit("/", 1)[-1])
        if match:
            return f"{match[1]}.{match[2]}"
    return None
