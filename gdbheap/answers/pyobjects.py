"""Which Python types hold the memory?"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from gdbheap.heap import Heap


@dataclass(frozen=True)
class TypeRow:
    """One type: live objects, the bytes of their own blocks (headers included), and of the blocks that they own."""

    type: str
    count: int
    bytes: int
    buffers: int


@dataclass(frozen=True)
class Count:
    """Sums over all types."""

    count: int
    bytes: int
    buffers: int


@dataclass(frozen=True)
class Tally:
    """Blocks and their bytes."""

    count: int
    bytes: int


@dataclass(frozen=True)
class PyObjects:
    """The answer of ``heap pyobjects``, largest first.

    ``free_lists``: objects that the interpreter keeps for reuse, not alive. ``unclassified``: used pymalloc blocks that
    are neither objects nor known buffers. ``other_chunks``: used glibc chunks that are neither.
    """

    types: list[TypeRow]
    total: Count
    free_lists: Tally
    unclassified: Tally
    other_chunks: Tally


def pyobjects(heap: Heap, pattern: str | None = None) -> PyObjects:
    """A row for each type name that matches ``pattern``, and the total of those. Raises NotAPython or Unsupported."""
    names = heap.objects.names
    census = heap.census()
    sums: dict[str, list[int]] = {}
    idle = [0, 0]
    for address, _flags, count, size, idle_count, idle_size, _buffers, buffer_size in census.rows:
        row = sums.setdefault(names.name(address), [0, 0, 0])
        for place, value in enumerate((count, size, buffer_size)):
            row[place] += value
        idle = [idle[0] + idle_count, idle[1] + idle_size]
    types = [TypeRow(name, *row) for name, row in sums.items() if row[0] or row[2]]
    types = [row for row in types if pattern is None or fnmatchcase(row.type, pattern)]
    types.sort(key=lambda row: (-(row.bytes + row.buffers), row.type))
    total = Count(*(sum(getattr(row, name) for row in types) for name in ("count", "bytes", "buffers")))
    in_pools, in_chunks, in_mapped = census.unclassified
    other = Tally(in_chunks[0] + in_mapped[0], in_chunks[1] + in_mapped[1])
    return PyObjects(types, total, Tally(*idle), Tally(*in_pools), other)
