"""What is resident as a flame graph: by who handed it out, by arena, by whether it is in use, by the types of objects.
Where nobody knows what is resident, the address space in its place.

The widths of all but the last row are the ledger's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.composition import NO_OBJECT, composition
from gdbheap.report.flame import Colours, flame_part
from gdbheap.report.page.html import COUNT, SIZE, Column, Section, details, paragraph, refused, table

if TYPE_CHECKING:
    from gdbheap.history.overview import Overview

__all__ = ["COLOURS", "NO_OBJECT", "composition_section"]

# As in the flame graph of stacks: text has a contrast of at least 7 to 1 on all of them.
COLOURS: Colours = {
    "used": (("#b7e0b9", "#a8d8ab", "#c6e8c8"), ("#1f4d2b", "#1a4225", "#245a32")),
    "free": (("#f6c1b8", "#f3b2a7", "#f9d0c9"), ("#6b241b", "#5c1f17", "#7a2a20")),
    "overhead": (("#dcc9ea", "#d2bbe4", "#e6d8f0"), ("#4a3260", "#402b53", "#54396d")),
    "other": (("#a9cdf0", "#97c1ea", "#bcd9f5"), ("#1f4a73", "#193f63", "#265482")),
    "rest": (("#d9d9d9",) * 3, ("#474747",) * 3),
}
COLUMNS = (
    Column("stack", "what, from the outside in"), Column("blocks", "blocks", COUNT), Column("bytes", "bytes", SIZE),
)  # fmt: skip
MAX_ROWS = 50


def composition_section(found: Overview, most: int) -> Section:
    """The picture, and its largest cells as a table."""
    known = found.ledger.rss.bytes is not None
    what = "resident memory" if known else "the address space"
    title = f"From {what} down to types"
    stacks = list(composition(found.ledger, found.map.answer, found.places.answer))
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
