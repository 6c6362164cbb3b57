"""Resident memory as a tree: by allocator, arena, state, and type of object. If residency is unknown, it is a tree of
the address space.

The innermost cells are the lines of the ledger that have no children. Lines of blocks in use are also split by type.
The bytes of such a line that are not split by type are one more cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gdbheap.report.formats.flame import Subject
from gdbheap.stack_frames import StackFrame

if TYPE_CHECKING:
    from gdbheap.answers.heap_map import HeapMap, MapGroup
    from gdbheap.first_page.ledger import Ledger, Line
    from gdbheap.snapshots.type_places import TypePlaces, TypeShare
    from gdbheap.stacks import Weighted

__all__ = ["MEMORY", "NO_OBJECT", "composition"]

USED = "used"
KINDS = {"used": "used", "free": "free", "top": "free", "overhead": "overhead"}
NO_OBJECT = "buffers and other blocks without an object"
REMAINDER = "remainder of the line"
ARENA = re.compile(r"\A(?P<line>[^.]+\.[^.]+)\.(?P<arena>[0-9]+)")
# The most parts of a line's id that are used, because a file may contain any id.
DEEPEST = 8
# Text has a contrast of at least 7 to 1 on all of these colours.
MEMORY = Subject(
    {
        "used": (("#b7e0b9", "#a8d8ab", "#c6e8c8"), ("#1f4d2b", "#1a4225", "#245a32")),
        "free": (("#f3dc9b", "#efd283", "#f7e6b5"), ("#5a4300", "#4d3900", "#664c00")),
        "overhead": (("#dcc9ea", "#d2bbe4", "#e6d8f0"), ("#4a3260", "#402b53", "#54396d")),
        "other": (("#a9cdf0", "#97c1ea", "#bcd9f5"), ("#1f4a73", "#193f63", "#265482")),
        "rest": (("#d9d9d9",) * 3, ("#474747",) * 3),
    },
    {
        "used": "in use",
        "free": "free",
        "overhead": "the allocator's own data",
        "other": "memory of no allocator",
        "rest": "several",
    },
    "smaller part",
    "block",
)


def composition(ledger: Ledger, drawn: HeapMap | None = None, places: TypePlaces | None = None) -> Iterator[Weighted]:
    """Yield the innermost cells of the flame graph of memory by ledger line and type.

    A cell is a tuple: its path from the outermost cell inwards, its bytes, and its number of blocks. For a process the
    bytes add up to RSS.

    ``ledger``: the ledger with all details. ``drawn``: the heap map. ``places``: the types in the cells of ``drawn``,
    in the order of the cells.
    """
    lines = ledger.ledger
    known = ledger.rss.bytes is not None
    parents = {line.parent for line in lines}
    by_line = _types_by_line(ledger, drawn, places)
    names = {line.id: line.name for line in lines}
    for line in lines:
        is_told = line.id in parents and line.id not in by_line
        if is_told or any(line.id.startswith(f"{above}.") for above in by_line):
            continue
        above = tuple(_frames(line, names))
        left = (line.resident or 0) if known else line.virtual
        for share in by_line.get(line.id, []):
            size = min((share.resident or 0) if known else share.bytes, left)
            left -= size
            yield (*above, StackFrame(share.type or NO_OBJECT, "", None, USED)), size, share.count
        if line.id in by_line:
            above = (*above, StackFrame(REMAINDER, "", None, "rest"))
        yield above, left, 0


def _frames(line: Line, names: dict[str, str]) -> Iterator[StackFrame]:
    """Yield the frames of the path to a line: its owner, its arena if it has one, its state, and any lines between
    them."""
    parts = line.id.split(".")
    found = ARENA.fullmatch(line.id)
    kind = KINDS.get(line.state or "", "other")
    yield StackFrame(names.get(parts[0], parts[0]), "", None, "other" if kind == "other" else "rest")
    if found is not None and line.state is not None:
        yield StackFrame(_arena(int(found["arena"])), "", None, "rest")
        yield StackFrame(names.get(found["line"], found["line"]), "", None, kind)
        return
    for depth in range(2, min(len(parts), DEEPEST) + 1):
        own = ".".join(parts[:depth])
        yield StackFrame(names.get(own, own), "", None, kind)


def _arena(index: int) -> str:
    return f"arena {index}" if index else "main arena"


def _types_by_line(ledger: Ledger, drawn: HeapMap | None, places: TypePlaces | None) -> dict[str, list[TypeShare]]:
    """Return the types of objects in the memory of each ledger line, by the line's id.

    The bytes of a type are summed over all cells of the map, and the largest type comes first. The result is empty
    without the map or without the types in its cells.
    """
    if drawn is None or places is None:
        return {}
    used = {line.id for line in ledger.ledger if line.state == USED}
    cells = [_line_of(group, used) for group in drawn.rows for _cell in group.cells]
    sums: dict[str, dict[str | None, TypeShare]] = {}
    for share in places.shares:
        line = cells[share.place] if share.place < len(cells) else None
        if line is None:
            continue
        of_line = sums.setdefault(line, {})
        before = of_line.get(share.type)
        of_line[share.type] = share if before is None else _added(before, share)
    return {line: sorted(of.values(), key=_rank) for line, of in sums.items()}


def _rank(share: TypeShare) -> int:
    return -(share.bytes if share.resident is None else share.resident)


def _added(one: TypeShare, other: TypeShare) -> TypeShare:
    resident = None if one.resident is None or other.resident is None else one.resident + other.resident
    return type(one)(one.place, one.type, one.count + other.count, one.bytes + other.bytes, resident)


def _line_of(group: MapGroup, used: set[str]) -> str | None:
    """Return the id of the ledger line that counts a group's used memory; None if the group belongs to no allocator."""
    own = f"{group.kind}.{USED}"
    if group.arena is not None and f"{own}.{group.arena}" in used:
        return f"{own}.{group.arena}"
    return own if own in used else next((name for name in used if name.rpartition(".")[2] == group.kind), None)
