"""What is resident as a flame graph: by who handed it out, by arena, by whether it is in use, by the types of objects.
Where nobody knows what is resident, the address space in its place.

The widths of all but the last row are the ledger's lines. What lies in blocks in use is told by type as far as that is
known, resident bytes alone; what remains of a line has a cell of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gdbheap.answers.stacks import StackFrame
from gdbheap.report.flame import Colours, flame_part
from gdbheap.report.page.html import COUNT, SIZE, Column, Section, details, paragraph, refused, table

if TYPE_CHECKING:
    from gdbheap.answers.heap_map import Group
    from gdbheap.answers.ledger import Line
    from gdbheap.answers.stacks import Weighted
    from gdbheap.history.overview import Overview
    from gdbheap.history.places import TypeShare

__all__ = ["COLOURS", "NO_OBJECT", "composition_section"]

USED, OVERHEAD = "used", "overhead"
STATES = {"used": "in use", "free": "free", "top": "top", "overhead": "overhead"}
# As in the flame graph of stacks: text has a contrast of at least 7 to 1 on all of them.
COLOURS: Colours = {
    "used": (("#b7e0b9", "#a8d8ab", "#c6e8c8"), ("#1f4d2b", "#1a4225", "#245a32")),
    "free": (("#f6c1b8", "#f3b2a7", "#f9d0c9"), ("#6b241b", "#5c1f17", "#7a2a20")),
    "overhead": (("#dcc9ea", "#d2bbe4", "#e6d8f0"), ("#4a3260", "#402b53", "#54396d")),
    "other": (("#a9cdf0", "#97c1ea", "#bcd9f5"), ("#1f4a73", "#193f63", "#265482")),
    "rest": (("#d9d9d9",) * 3, ("#474747",) * 3),
}
KINDS = {"used": "used", "free": "free", "top": "free", "overhead": "overhead"}
NO_OBJECT = "buffers and other blocks that are no objects"
REMAINDER = "the rest of it"
ARENA = re.compile(r"(?P<line>[^.]+\.[^.]+)\.(?P<arena>[0-9]+)")
COLUMNS = (
    Column("stack", "what, from the outside in"), Column("blocks", "blocks", COUNT), Column("bytes", "bytes", SIZE),
)  # fmt: skip
MAX_ROWS = 50
# Parts of a line's id: those of a file may be anything.
DEEPEST = 8


def composition_section(found: Overview, most: int) -> Section:
    """The picture, and its largest cells as a table."""
    known = found.ledger.rss.bytes is not None
    what = "resident memory" if known else "the address space"
    title = f"From {what} down to types"
    stacks = list(_stacks(found, known))
    if not stacks:
        return refused("composition", title, "nothing is known of this memory")
    picture = flame_part(stacks, f"{what} by owner, arena, state and type", COLOURS, "block")
    rows = [
        (" > ".join(frame.name for frame in frames), blocks, weight)
        for frames, weight, blocks in sorted(stacks, key=lambda stack: -stack[1])
        if weight
    ]
    told = "" if known else "Which of it is resident is not known. "
    told += "Each row is a part of the one above it; a cell is as wide as its bytes."
    if found.places.answer is None:
        told += f" Types are missing: {found.places.why}."
    total = ("total", "", sum(weight for _frames, weight, _blocks in stacks))
    cells = table("composition-cells", "The innermost cells", COLUMNS, rows, min(most, MAX_ROWS), total)
    body = f"{paragraph(told)}<figure>{picture}</figure>\n{details('The same as a table', cells)}"
    return Section("composition", title, body)


def _stacks(found: Overview, known: bool) -> Iterator[Weighted]:
    """The innermost cells: lines of the ledger without children, those in use by type."""
    lines = found.ledger.ledger
    parents = {line.parent for line in lines}
    by_line = _types_by_line(found)
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
    """The way to a line: who has it, the arena if it has one, its state and what is below that."""
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


def _types_by_line(found: Overview) -> dict[str, list[TypeShare]]:
    """Types by the ledger's line in whose memory they lie, largest first; those of several cells together."""
    drawn, places = found.map.answer, found.places.answer
    if drawn is None or places is None:
        return {}
    used = {line.id for line in found.ledger.ledger if line.state == USED}
    cells = [_line_of(group, used) for group in drawn.groups for _cell in group.cells]
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


def _line_of(group: Group, used: set[str]) -> str | None:
    """The line that has what is in use in a stretch that is drawn; None for what is no allocator's."""
    own = f"{group.kind}.{USED}"
    if group.arena is not None and f"{own}.{group.arena}" in used:
        return f"{own}.{group.arena}"
    return own if own in used else next((name for name in used if name.rpartition(".")[2] == group.kind), None)
