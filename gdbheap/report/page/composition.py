"""The page's section that shows resident memory by allocator, arena, state and type, as a table. If residency is
unknown, it shows the address space.

Each row has a path of names. All names except the last are lines of the ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.formats.composition import NO_OBJECT, USED, composition
from gdbheap.report.page.html import COUNT, SIZE, Column, Section, details, paragraph, refused, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gdbheap.snapshots.overview import Overview
    from gdbheap.stack_frames import StackFrame

__all__ = ["NO_OBJECT", "composition_section"]

COLUMNS = (
    Column("stack", "part, outermost first"), Column("blocks", "blocks", COUNT), Column("bytes", "bytes", SIZE),
)  # fmt: skip
MAX_ROWS = 50


def composition_section(found: Overview, most: int) -> Section:
    """Return the section with the table of the ``most`` largest parts of the memory."""
    known = found.ledger.rss.bytes is not None
    what = "resident memory" if known else "the address space"
    title = f"From {what} down to types"
    stacks = list(composition(found.ledger, found.map.answer, found.places.answer))
    if not stacks:
        return refused("composition", title, "nothing is known about this memory")
    rows = [
        (" > ".join(frame.name for frame in frames), _blocks(frames, blocks), weight)
        for frames, weight, blocks in sorted(stacks, key=lambda stack: -stack[1])
        if weight
    ]
    told = "" if known else "It is unknown how much of the address space is resident. "
    if found.places.answer is None:
        told += f"Types are missing: {found.places.why}."
    total = ("total", "", sum(weight for _frames, weight, _blocks in stacks))
    cells = table(
        "composition-cells", "The innermost parts, the largest first", COLUMNS, rows, min(most, MAX_ROWS), total
    )
    body = paragraph(told.rstrip()) + details("By allocator, arena, state and type", cells)
    return Section("composition", title, body)


def _blocks(frames: Sequence[StackFrame], blocks: int) -> int | str | None:
    """Return a part's number of blocks: None if it is unknown, "" if the part has no blocks, such as the memory of a
    file.
    """
    if blocks:
        return blocks
    return None if frames[-1].kind == USED else ""
