"""``_Py_DebugOffsets``: what an interpreter, 3.13 or later, publishes of its own layout.

It is the first member of ``_PyRuntime``: a cookie, the version, whether the build is free-threaded, then words in
groups, one group for each struct. Which words those are depends on the minor version (``tables/debug_offsets.json``,
from DWARF). The words are the target's, and are believed only where they can be offsets. Fields that no release has
moved must be where they always are, which also proves that the groups lie as that table says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gdbheap._native import Space
from gdbheap.errors import Fault
from gdbheap.layout.tables import table
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import backed_pieces

SYMBOL = "_PyRuntime"
COOKIE = b"xdebugpy"
TABLE_HEAD = struct.Struct("<8sQQ")
WORD = 8
# Free-threaded builds have a larger head before an object's fields.
LARGER_HEAD = 16
# Bytes: these two hold state that grows from release to release, the others are of a few hundred bytes.
MAX_STATE_SIZES = {"runtime_state": 1 << 24, "interpreter_state": 1 << 24}
MAX_STRUCT_SIZE = 1 << 16
WINDOW = 1 << 20
# An interpreter has about 1 MiB of data.
MAX_BYTES_SEARCHED = 64 << 20
Groups = dict[str, dict[str, int]]


@dataclass(frozen=True)
class DebugOffsets:
    """The table at ``address``: ``version`` is PY_VERSION_HEX, ``fields`` the offsets and sizes by the names that the
    shipped table (``tables/cpython.json``) has for them."""

    address: int
    version: int
    free_threaded: bool
    fields: dict[str, int]

    @property
    def release(self) -> str:
        """The version as text, like ``3.13.0``."""
        return version_text(self.version)


def version_text(version: int) -> str:
    """``3.11.2`` for the PY_VERSION_HEX 0x030B02F0."""
    return f"{version >> 24}.{version >> 16 & 255}.{version >> 8 & 255}"


def find_debug_offsets(space: Space, module: LoadedObject) -> tuple[int, str] | None:
    """(address, source) of where an interpreter has the table, if it has one: the exported symbol, else an aligned
    cookie in its data. None where neither is there."""
    address = module.symbol(SYMBOL)
    if address is not None:
        return address, f"the symbol {SYMBOL}"
    found = next(_cookies(space, module), None)
    return None if found is None else (found, "its cookie in the interpreter's data")


def has_cookie(space: Space, address: int) -> bool:
    """Whether the table's cookie is at ``address``; up to 3.12 ``_PyRuntime`` begins with something else."""
    return space.read_available(address, len(COOKIE)) == COOKIE


def _cookies(space: Space, module: LoadedObject) -> Iterator[int]:
    """Where an aligned cookie is, followed by the version of a Python 3."""
    for address, raw in windows(space, module, TABLE_HEAD.size):
        at = raw.find(COOKIE)
        while at >= 0:
            known = (address + at) % WORD == 0 and len(raw) >= at + TABLE_HEAD.size
            if known and TABLE_HEAD.unpack_from(raw, at)[1] >> 24 == 3:
                yield address + at
            at = raw.find(COOKIE, at + 1)


def windows(space: Space, module: LoadedObject, beyond: int = 0) -> Iterator[tuple[int, bytes]]:
    """(address, bytes) of an interpreter's data in pieces that begin at whole words, each ``beyond`` bytes longer than
    the step to the next; where it has more than any interpreter, its first part."""
    left = MAX_BYTES_SEARCHED
    for start, end in module.writable_ranges():
        yield from backed_pieces(space, (start + WORD - 1) & -WORD, min(end, start + left), WINDOW, beyond)
        left -= min(left, end - start)


def read_debug_offsets(space: Space, address: int) -> DebugOffsets:
    """The table at ``address``. Raises ValueError, with the reason, for one that cannot be believed."""
    try:
        cookie, version, flag = TABLE_HEAD.unpack(space.read(address, TABLE_HEAD.size))
        layout = _layout(version)
        words = _words(space, address + TABLE_HEAD.size, layout)
    except Fault as fault:
        raise ValueError(f"nothing is at {fault.args[0]:#x}") from fault
    if cookie != COOKIE:
        raise ValueError("it does not begin with its cookie")
    if flag not in (0, 1):
        raise ValueError(f"its flag for free-threaded builds is {flag:#x}")
    _check_sizes(words)
    _check_fixed(words, LARGER_HEAD if flag else 0)
    return DebugOffsets(address, version, bool(flag), {**_offsets(words, bool(flag)), **_sizes(words)})


def _layout(version: int) -> dict[str, list[str]]:
    """The groups of that version, in order. Raises ValueError."""
    releases: dict[str, Any] = table("debug_offsets")["releases"]
    groups = releases.get(f"{version >> 24}.{version >> 16 & 255}")
    if groups is None:
        raise ValueError(f"it says that it is of version {version:#x} (known are {', '.join(releases)})")
    return dict(groups)


def _words(space: Space, address: int, layout: dict[str, list[str]]) -> Groups:
    """{group: {field: word}}. Raises Fault."""
    count = sum(map(len, layout.values()))
    words = iter(struct.unpack(f"<{count}Q", space.read(address, WORD * count)))
    return {group: {name: next(words) for name in names} for group, names in layout.items()}


def _check_sizes(words: Groups) -> None:
    """Raises ValueError for a struct of a size that none has."""
    for group, fields in words.items():
        size = fields.get("size", WORD)
        if not 0 < size <= MAX_STATE_SIZES.get(group, MAX_STRUCT_SIZE) or size % WORD:
            raise ValueError(f"it says that {group} has {size:#x} bytes")


def _check_fixed(words: Groups, added: int) -> None:
    """Raises ValueError where a field is not where every release has had it."""
    for group, fields in table("debug_offsets")["fixed"].items():
        for name, offset in fields.items():
            found = words.get(group, {}).get(name, offset + added)
            if found != offset + added:
                raise ValueError(f"it has {group}.{name} at {found:#x} and not at {offset + added:#x}")


def _offsets(words: Groups, free_threaded: bool) -> dict[str, int]:
    """Each field's offset. Raises ValueError for one that lies outside of its struct, in its head, or on another."""
    found: dict[str, int] = {}
    taken: set[tuple[str, int]] = set()
    tables = table("debug_offsets")
    fields = {**tables["fields"], **(tables["free_threaded_fields"] if free_threaded else {})}
    for name, (group, field, width) in fields.items():
        offset = words.get(group, {}).get(field)
        if offset is None:
            continue
        start = words["pyobject"]["size"] if group.endswith("_object") else 0
        if not start <= offset <= words[group]["size"] - width or offset % width or (group, offset) in taken:
            raise ValueError(f"it has {group}.{field} at {offset:#x}")
        taken.add((group, offset))
        found[name] = offset
    return found


def _sizes(words: Groups) -> dict[str, int]:
    """Each size. Raises ValueError for one that is larger than the struct that it is a part of."""
    found: dict[str, int] = {}
    for name, (group, field) in table("debug_offsets")["sizes"].items():
        size = words.get(group, {}).get(field)
        if size is None:
            continue
        if not words["pyobject"]["size"] < size <= words[group]["size"] or size % WORD:
            raise ValueError(f"invalid debug offsets: {group}.{field} is {size:#x}")
        found[name] = size
    return found
