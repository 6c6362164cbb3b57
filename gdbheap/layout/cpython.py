"""The layout of this interpreter's objects: which release it is, who says so, and the offsets of that release.

``PyTypeObject``'s fields that are used here have not moved from 2.7 to 3.15 (DWARF of all of them), so types can be
recognised before anything is known of the version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.facts import Facts
from gdbheap.layout.tables import table
from gdbheap.target.elf import LoadedObject
from gdbheap.target.target import Target

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
# Objects that begin with plain numbers after their head.
FLAGS_PLAIN = FLAG_INT | FLAG_BYTES | FLAG_UNICODE

_NAME = re.compile(r"python(\d)\.(\d+)")


@dataclass(frozen=True)
class Release:
    """An interpreter's release: ``text`` is like ``3.11.2`` (or ``3.11``), ``fields`` the offsets of its objects,
    ``added`` the bytes that the head of its objects has beyond ``ob_refcnt`` and ``ob_type``; ``traced``: those are two
    links before both (Py_TRACE_REFS)."""

    text: str
    major: int
    minor: int
    fields: dict[str, Any]
    added: int = 0
    traced: bool = False

    @property
    def is_free_threaded(self) -> bool:
        """Whether it was built to run without the interpreter's lock."""
        return bool(self.added) and not self.traced

    @property
    def ob_refcnt(self) -> int:
        """Where an object's count is, unless it has two (free-threaded builds)."""
        return self.added if self.traced else 0

    def at(self, offset: int) -> int:
        """The place of a field behind the head of an object: some builds have a larger one."""
        return offset + self.added

    def __getitem__(self, name: str) -> int:
        """The offset or size called ``name``. Raises Unsupported when this release has no such field."""
        offset = self.fields.get(name)
        if offset is None:
            raise Unsupported(f"Python {self.text} has no {name}, as far as the tables know")
        return int(offset)

    def get(self, name: str) -> int | None:
        """The same, None when this release has no such field."""
        offset = self.fields.get(name)
        return None if offset is None else int(offset)


def find_release(target: Target, module: LoadedObject, facts: Facts, free_threaded: bool = False) -> Release:
    """The release of the interpreter in ``module``: ``Py_Version`` if it is exported, else the file's name.

    Raises Unsupported when neither tells, or the release is in no table.
    """
    exported, named = _exported_version(target), _named_version(target, module)
    if exported is None and named is None:
        raise Unsupported(
            "which Python this is cannot be told: Py_Version is not to be read, and no file is named pythonX.Y"
        )
    text = exported or named or ""
    major, minor = (int(part) for part in text.split(".")[:2])
    confirmed = (
        None
        if exported is None or named is None
        else ("file name" if exported.startswith(named) else f"the file is named {named}")
    )
    facts.add("python", text, "Py_Version" if exported else "the file's name", confirmed)
    fields = table("cpython")["releases"].get(f"{major}.{minor}")
    if fields is None:
        known = ", ".join(table("cpython")["releases"])
        raise Unsupported(f"the objects of Python {text} are not known (known are {known})")
    facts.add("object layouts", f"as of {major}.{minor}", "shipped table, from DWARF of a build of that release")
    if free_threaded:
        return _without_lock(text, major, minor, facts)
    if _is_traced(target, module):
        facts.add("Py_TRACE_REFS", "yes", "PyType_Type is its own type 16 bytes further in")
        return _with_links(text, major, minor, fields)
    return Release(text, major, minor, fields)


def _is_traced(target: Target, module: LoadedObject) -> bool:
    """Whether two links stand before ``ob_refcnt``: the type of ``type`` is ``type``."""
    address = module.symbol("PyType_Type")
    if address is None:
        return False
    try:
        return target.space.u64(address + OB_TYPE + table("cpython")["traced"]["added"]) == address
    except Fault:
        return False


def _with_links(text: str, major: int, minor: int, fields: dict[str, Any]) -> Release:
    """The release as a build with Py_TRACE_REFS lays its objects out."""
    changes = table("cpython")["traced"]
    own = changes["releases"].get(f"{major}.{minor}", {})
    return Release(text, major, minor, {**_moved(fields, changes["added"]), **own}, changes["added"], traced=True)


def _moved(fields: dict[str, Any], added: int) -> dict[str, Any]:
    """The fields with those that are counted from an object's start so much further in. Up to 3.10 a frame is one."""
    tables = table("cpython")
    counted = set(tables["counted_from_objects"])
    if fields.get("frame_data") is None:
        counted.update(tables["counted_from_frames"])

    def moved(at: int | list[int]) -> int | list[int]:
        return [one + added for one in at] if isinstance(at, list) else at + added

    return {name: moved(at) if name in counted and at is not None else at for name, at in fields.items()}


def _without_lock(text: str, major: int, minor: int, facts: Facts) -> Release:
    """The release as a free-threaded build lays its objects out. Raises Unsupported."""
    tables = table("cpython")
    changes = tables["free_threaded"]
    own = changes["releases"].get(f"{major}.{minor}")
    if own is None:
        raise Unsupported(f"a free-threaded Python {text} is not known (known are {', '.join(changes['releases'])})")
    added = int(changes["added"])
    fields = _moved(tables["releases"][f"{major}.{minor}"], added)
    facts.add("free-threaded", "yes", "mimalloc keeps objects, and each page's tag tells which")
    return Release(text, major, minor, {**fields, **own}, added)


def _exported_version(target: Target) -> str | None:
    """``Py_Version`` (3.11 and later): 0x030B02F0 is 3.11.2."""
    for loaded in target.objects:
        address = loaded.symbol("Py_Version")
        if address is not None:
            try:
                value = target.space.u32(address)
            except Fault:
                continue
            if value >> 24 in (2, 3):
                return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}"
    return None


def _named_version(target: Target, module: LoadedObject) -> str | None:
    for loaded in [module] + target.objects:
        match = _NAME.search(loaded.path.rsplit("/", 1)[-1])
        if match:
            return f"{match[1]}.{match[2]}"
    return None
