"""The memory of tracemalloc's own tables, which describe the traced blocks."""

from __future__ import annotations

from gdbheap.answers.accounting.traced import most_of_tables
from gdbheap.contents.python.running.tracemalloc_tables import Traces, TraceTable
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding
from gdbheap.heap import Heap


@dataclass(frozen=True)
class TraceTables(Figures):
    """The tables of tracemalloc. ``traces``: the number of blocks that tracemalloc traces."""

    ids = ("tracemalloc",)
    traces: int


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the bytes of tracemalloc's tables and their entries.

    The tables are searched only if malloc has enough blocks of their sizes. The list is empty if the finding's bytes
    are unknown or too few.
    """
    if evidence.objects is None or not evidence.worth(most_of_tables(evidence.heap)):
        return []
    traces = evidence.heap.python.traces
    size = sum(_bytes(evidence.heap, traces, table) for table in traces.tables)
    if not evidence.worth(size):
        return []
    return [Finding("tracemalloc", size, TraceTables(sum(table.entries for table in traces.tables)))]


def _bytes(heap: Heap, traces: Traces, table: TraceTable) -> int:
    """Return the bytes of a table's blocks with headers: its buckets, and its entries. The entries' bytes are estimated
    from the first entry.
    """
    return _size(heap, table.buckets) + table.entries * sum(_size(heap, block) for block in traces.first_blocks(table))


def _size(heap: Heap, address: int) -> int:
    block = heap.block_at(address)
    return 0 if block is None else block.size
