"""Resident memory by holder, as stacks with weights.

Used blocks are grouped by holder, free blocks by the allocator that keeps them, and all other memory by its line of the
ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gdbheap.findings.holder.rule import RUNTIME
from gdbheap.report.formats.composition import KINDS, USED
from gdbheap.report.words.main_holders import described
from gdbheap.stack_frames import StackFrame

if TYPE_CHECKING:
    from gdbheap.findings.holder.rule import MainHolder
    from gdbheap.first_page.ledger import Ledger, Line
    from gdbheap.stacks import Weighted

__all__ = ["holder_tree"]

IN_USE, FREE, OTHER = "in use", "free", "other"
UNNAMED = "other blocks in use"
ALLOCATORS_OWN = "the allocators' own data"


def holder_tree(ledger: Ledger, holders: Sequence[MainHolder]) -> list[Weighted]:
    """Return the innermost cells of the report's picture of memory by holder.

    A cell is a tuple: its path from the outermost cell inwards, its bytes, and its number of blocks. For a process the
    bytes add up to RSS, or to the address space if residency is unknown.
    """
    known = ledger.rss.bytes is not None
    parts = [(line, _size(line, known)) for line in _parts(ledger.ledger)]
    used = sum(size for line, size in parts if line.state == USED)
    found = [((_frame(IN_USE, USED), *frames), size, count) for frames, size, count in _held(holders, used, known)]
    sums: dict[StackFrame, int] = {}
    for line, size in parts:
        if line.state != USED:
            frame = _cell(line)
            sums[frame] = sums.get(frame, 0) + size
    return [*found, *(((frame,), size, 0) for frame, size in sums.items() if size > 0)]


def _parts(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of the ledger that the picture shows. These are the states of allocators, the parts of other
    memory, and all other lines without a parent.
    """
    by_state = {line.id for line in lines if line.state is not None and line.id.count(".") == 1}
    split = {name.partition(".")[0] for name in by_state}
    split |= {OTHER} if any(line.parent == OTHER for line in lines) else set()
    return [line for line in lines if (line.parent in split if line.parent else line.id not in split)]


def _size(line: Line, known: bool) -> int:
    return (line.resident or 0) if known else line.virtual


def _cell(line: Line) -> StackFrame:
    kind = KINDS.get(line.state or "", OTHER)
    if kind == FREE:
        return _frame(f"free, kept by {line.id.partition('.')[0]}", FREE)
    return _frame(ALLOCATORS_OWN, kind) if kind != OTHER else _frame(line.name, OTHER)


def _held(holders: Sequence[MainHolder], used: int, known: bool) -> Iterator[Weighted]:
    """Yield the cells of each holder's memory, the largest holder first.

    Together the holders get at most ``used`` bytes. The remaining bytes become one more cell. ``known``: whether
    residency is known; if it is, only resident bytes count.
    """
    left = used
    for row in sorted((row for row in holders if row.kind != RUNTIME), key=lambda row: -row.bytes):
        size = min(row.resident if known and row.resident is not None else row.bytes, left)
        left -= size
        yield from _of_holder(row, size)
    if left > 0:
        yield (_frame(UNNAMED, USED),), left, 0


def _of_holder(row: MainHolder, size: int) -> Iterator[Weighted]:
    holder = StackFrame(row.path, described(row), None, USED)
    for part in row.parts:
        own = min(part.bytes, size)
        size -= own
        if own > 0:
            yield (holder, _frame(part.what, USED)), own, part.count
    if size > 0:
        yield (holder,), size, 0


def _frame(name: str, kind: str) -> StackFrame:
    return StackFrame(name, "", None, kind)
