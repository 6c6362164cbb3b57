"""Group memory by the line of Python code that allocated it, in a program that runs tracemalloc."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import ClassVar

from gdbheap import _native
from gdbheap.answers.accounting.absent import absent_blocks
from gdbheap.answers.accounting.traced import traced
from gdbheap.dataclass import dataclass
from gdbheap.errors import Unsupported
from gdbheap.heap import Heap

NOT_TRACING = (
    "tracemalloc does not run in this program, or has traced nothing: start it with PYTHONTRACEMALLOC=1, or call "
    "tracemalloc.start() in it; 'heap growth' and 'gdbheap trace' need no preparation"
)


@dataclass(frozen=True)
class LineRow:
    """A line of code ("FILE:LINE"), and the blocks in use that it allocated."""

    place: str
    count: int
    bytes: int
    absent: int = 0


@dataclass(frozen=True)
class Lines:
    """The answer of ``heap pyobjects --by=line``. The sums count all lines, even if rows were cut.

    ``unreadable``: the number of entries in tracemalloc's tables whose line cannot be read.
    """

    sums: ClassVar[tuple[str, ...]] = ("count", "bytes", "absent")
    rows: list[LineRow]
    count: int
    bytes: int
    unreadable: int
    absent: int = 0
    matching: int | None = None


def lines(heap: Heap, by_count: bool = False, top: int | None = None) -> Lines:
    """Return the first ``top`` lines, largest first, as ``tracemalloc.take_snapshot().statistics("lineno")`` lists
    them.

    ``by_count``: those with the most blocks first. Raises NotAPython, or Unsupported if nothing is traced.
    """
    traces = heap.python.traces
    if not traces.tables:
        raise Unsupported(NOT_TRACING)
    found = _native.count_traces(
        _native.Heaps(heap.target.space, []), traces.tables, heap.labelled("reading tracemalloc's tables")
    )
    sums: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    lost = sum(table.entries for table in traces.tables) - found.entries
    for row in found.rows:
        place = traces.line_of(row.traceback)
        if place is None:
            lost += row.count
            continue
        total = sums[place]
        total[0] += row.count
        total[1] += row.bytes
    absent = _absent(heap)
    rows = [LineRow(f"{file}:{line}", count, size, absent[file, line]) for (file, line), (count, size) in sums.items()]
    rows.sort(key=lambda row: (-(row.count if by_count else row.bytes), row.place))
    count, size, missing = (sum(getattr(row, name) for row in rows) for name in ("count", "bytes", "absent"))
    return Lines(rows[:top], count, size, lost, missing, len(rows))


def _absent(heap: Heap) -> Counter[tuple[str, int]]:
    """Return, for each line, how many bytes of the blocks that it allocated are not resident."""
    found = Counter[tuple[str, int]]()
    for block in absent_blocks(heap):
        known = traced(heap, block.address)
        if known is not None:
            found[known.line] += block.bytes
    return found
