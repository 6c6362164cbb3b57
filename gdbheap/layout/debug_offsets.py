"""Read ``_Py_DebugOffsets``: the table in which an interpreter, 3.13 or later, publishes its own layout.

The table is the first member of ``_PyRuntime``. It begins with a cookie, the version, and whether the build is
free-threaded. Groups of words follow, one group for each struct. The words depend on the minor version
(``tables/debug_offsets.json``, from DWARF). The words come from the target, so they are used only if they are possible
offsets. Fields that no release has moved must have their usual offsets. This also proves the order of the groups.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from gdbheap._native import Space
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.shipped_tables import table
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import backed_pieces

SYMBOL = "_PyRuntime"
COOKIE = b"xdebugpy"
TABLE_HEAD = struct.Struct("<8sQQ")
WORD = 8
# The head of an object is this many bytes larger in free-threaded builds.
LARGER_HEAD = 16
# The largest sizes of structs that are believed, in bytes. The two named structs grow from release to release; all
# other structs have a few hundred bytes.
MAX_STATE_SIZES = {"runtime_state": 1 << 24, "interpreter_state": 1 << 24}
MAX_STRUCT_SIZE = 1 << 16
WINDOW = 1 << 20
# An interpreter has about 1 MiB of data.
MAX_BYTES_SEARCHED = 64 << 20
Groups = dict[str, dict[str, int]]


@dataclass(frozen=True)
class DebugOffsets:
    """The table of offsets that an interpreter publishes; it begins at ``address``.

    ``version``: PY_VERSION_HEX.
    ``fields``: offsets and sizes in bytes, by their names in the shipped table (``tables/cpython.json``).
    """

    address: int
    version: int
    free_threaded: bool
    fields: dict[str, int]

    @property
    def release(self) -> str:
        """The interpreter's version as text, like ``3.13.0``."""
        return version_text(self.version)


def version_text(version: int) -> str:
    """Return the text of a PY_VERSION_HEX: ``3.11.2`` for 0x030B02F0."""
    return f"{version >> 24}.{version >> 16 & 255}.{version >> 8 & 255}"


def find_debug_offsets(space: Space, module: LoadedObject) -> tuple[int, str] | None:
    """Return the address of an interpreter's table of offsets, and a phrase that says how it was found; None if it has
    none.

    The symbol ``_PyRuntime`` gives the address. Without it, the interpreter's data is searched for the cookie, which is
    aligned.
    """
    address = module.symbol(SYMBOL)
    if address is not None:
        return address, f"the symbol {SYMBOL}"
    found = next(_cookies(space, module), None)
    return None if found is None else (found, "its cookie in the interpreter's data")


def has_cookie(space: Space, address: int) -> bool:
    """Return whether the cookie of the table of offsets is at ``address``, as at ``_PyRuntime`` since 3.13."""
    return space.read_available(address, len(COOKIE)) == COOKIE


def _cookies(space: Space, module: LoadedObject) -> Iterator[int]:
    """Yield the addresses of aligned cookies that are followed by the version of a Python 3."""
    for address, raw in windows(space, module, TABLE_HEAD.size):
        at = raw.find(COOKIE)
        while at >= 0:
            known = (address + at) % WORD == 0 and len(raw) >= at + TABLE_HEAD.size
            if known and TABLE_HEAD.unpack_from(raw, at)[1] >> 24 == 3:
                yield address + at
            at = raw.find(COOKIE, at + 1)


def windows(space: Space, module: LoadedObject, beyond: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield (address, bytes) of an interpreter's data in consecutive parts, each of which begins at a whole word.

    Each part also includes the first ``beyond`` bytes of the next part. At most MAX_BYTES_SEARCHED bytes are read; no
    interpreter has more data.
    """
    left = MAX_BYTES_SEARCHED
    for start, end in module.writable_ranges():
        yield from backed_pieces(space, (start + WORD - 1) & -WORD, min(end, start + left), WINDOW, beyond)
        left -= min(left, end - start)


def read_debug_offsets(space: Space, address: int) -> DebugOffsets:
    """Return the table of offsets at ``address``. Raises ValueError with the reason if the table is implausible."""
    try:
        cookie, version, flag = TABLE_HEAD.unpack(space.read(address, TABLE_HEAD.size))
        layout = _layout(version)
        words = _words(space, address + TABLE_HEAD.size, layout)
    except Fault as fault:
        raise ValueError(f"no memory at {fault.args[0]:#x}") from fault
    if cookie != COOKIE:
        raise ValueError("it does not begin with its cookie")
    if flag not in (0, 1):
        raise ValueError(f"its flag for free-threaded builds is {flag:#x}")
    _check_sizes(words)
    _check_fixed(words, LARGER_HEAD if flag else 0)
    return DebugOffsets(address, version, bool(flag), {**_offsets(words, bool(flag)), **_sizes(words)})


def _layout(version: int) -> dict[str, list[str]]:
    """Return the groups of the table's words for a version (PY_VERSION_HEX), in order: {group: names of its words}.

    Raises ValueError for an unknown version.
    """
    releases: dict[str, Any] = table("debug_offsets")["releases"]
    groups = releases.get(f"{version >> 24}.{version >> 16 & 255}")
    if groups is None:
        raise ValueError(f"its version is {version:#x} (gdbheap knows {', '.join(releases)})")
    return dict(groups)


def _words(space: Space, address: int, layout: dict[str, list[str]]) -> Groups:
    """Return the table's words, which begin at ``address``: {group: {field: word}}. Raises Fault."""
    count = sum(map(len, layout.values()))
    words = iter(struct.unpack(f"<{count}Q", space.read(address, WORD * count)))
    return {group: {name: next(words) for name in names} for group, names in layout.items()}


def _check_sizes(words: Groups) -> None:
    """Raise ValueError for a struct with an impossible size."""
    for group, fields in words.items():
        size = fields.get("size", WORD)
        if not 0 < size <= MAX_STATE_SIZES.get(group, MAX_STRUCT_SIZE) or size % WORD:
            raise ValueError(f"its size of {group} is {size:#x} bytes")


def _check_fixed(words: Groups, added: int) -> None:
    """Raise ValueError if a field is not at the offset that it has in every release."""
    for group, fields in table("debug_offsets")["fixed"].items():
        for name, offset in fields.items():
            found = words.get(group, {}).get(name, offset + added)
            if found != offset + added:
                raise ValueError(f"its offset of {group}.{name} is {found:#x}, not {offset + added:#x}")


def _offsets(words: Groups, free_threaded: bool) -> dict[str, int]:
    """Return the offset in bytes of each field.

    Raises ValueError if an offset lies outside its struct or in the head of an object. Raises ValueError if two fields
    have the same offset.
    """
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
    """Return the sizes in bytes of structs that are parts of other structs, by their names in the shipped table.

    Raises ValueError if a part is larger than the whole.
    """
    found: dict[str, int] = {}
    for name, (group, field) in table("debug_offsets")["sizes"].items():
        size = words.get(group, {}).get(field)
        if size is None:
            continue
        if not words["pyobject"]["size"] < size <= words[group]["size"] or size % WORD:
            raise ValueError(f"invalid debug offsets: {group}.{field} is {size:#x}")
        found[name] = size
    return found
