"""Read what tracemalloc recorded about a block, and name the memory of tracemalloc's tables."""

from __future__ import annotations

from typing import NamedTuple

from gdbheap.answers.accounting.smallest_row import least_of_row
from gdbheap.contents.python.running.tracemalloc_tables import Trace
from gdbheap.errors import GdbheapError
from gdbheap.heap import Heap

__all__ = ["TRACEMALLOC", "Traced", "most_of_tables", "name_tables", "trace_tables", "traced"]

TRACEMALLOC = "tracemalloc"

# The sizes of malloc blocks that can hold a table entry, in any release.
#
# Entries have at least MIN_PERCENT_IN_ENTRIES percent of a table's bytes.
ENTRIES = range(48, 81)
MIN_PERCENT_IN_ENTRIES = 40


class Traced(NamedTuple):
    """tracemalloc's record of a block, and the (file, line) that allocated the block."""

    trace: Trace
    line: tuple[str, int]


def traced(heap: Heap, block: int) -> Traced | None:
    """Return tracemalloc's record of the block at an address; None if it has none.

    tracemalloc does not see the bytes that debug hooks put at the beginning of a block. So the address in the record
    may be a little higher than ``block``.
    """
    traces, hook = heap.python.traces, heap.python.objects.layout.hook
    for place in dict.fromkeys((block, block + hook, block + 2 * hook)):
        trace = traces.of(place)
        line = None if trace is None else traces.line_of(trace.traceback)
        if trace is not None and line is not None:
            return Traced(trace, line)
    return None


def most_of_tables(heap: Heap) -> int:
    """Return an upper limit for the bytes of tracemalloc's tables, from malloc's blocks in use that have the size of a
    table entry."""
    in_entries = sum(size * count for size, count in heap.malloc.used_sizes() if size in ENTRIES)
    return 100 * in_entries // MIN_PERCENT_IN_ENTRIES


def trace_tables(heap: Heap) -> list[int]:
    """Return the addresses of tracemalloc's tables of traces and tracebacks; empty if they are too small to list."""
    if heap.python.objects_or_none is None:
        return []
    if most_of_tables(heap) < least_of_row(heap.references.graph.largest(0, 0).bytes):
        return []
    try:
        traces = heap.python.traces
    except GdbheapError:
        return []
    return [table.address for table in [*traces.tables, *traces.tracebacks]] if traces.tables else []


def name_tables(heap: Heap) -> None:
    """Name the blocks of tracemalloc's tables, so that paths in the graph of objects show these names."""
    found = [heap.references.find(address) for address in trace_tables(heap)]
    if found:
        heap.python.paths.named.update({node.block: TRACEMALLOC for node in found if node is not None})
