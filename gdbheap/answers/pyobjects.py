"""Which Python types hold the memory?"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from gdbheap.heap import Heap


@dataclass(frozen=True)
class TypeRow:
    """One type: live objects, the bytes of their own blocks (headers included), and of the blocks that they own.

    ``reached``: of the buffers, those that no known field names but to which pointers lead from the objects.
    """

    type: str
    count: int
    bytes: int
    buffers: int
    reached: int


@dataclass(frozen=True)
class Count:
    """Sums over all types."""

    count: int
    bytes: int
    buffers: int
    reached: int


@dataclass(frozen=True)
class Tally:
    """Blocks and their bytes."""

    count: int
    bytes: int


@dataclass(frozen=True)
class Root:
    """Blocks that no object owns, by whose pointers lead there: the static data of a library, or the threads."""

    name: str
    count: int
    bytes: int


@dataclass(frozen=True)
class PyObjects:
    """The answer of ``heap pyobjects``, largest first.

    ``used``: all used blocks of pymalloc, CPython's mimalloc and glibc's malloc; ``total`` (objects and buffers), ``free_lists``,
    ``interpreter``, ``roots``, ``unclassified`` and ``other_chunks`` add up to it. ``free_lists``: objects that the
    interpreter keeps for reuse, not alive. ``interpreter``: its own tables and states. ``roots``: blocks to which data
    of others lead. ``unclassified``: used blocks of pymalloc and of CPython's mimalloc of which nothing is known. ``other_chunks``: the same of
    glibc's chunks.
    """

    types: list[TypeRow]
    total: Count
    used: Tally
    free_lists: Tally
    interpreter: Tally
    roots: list[Root]
    unclassified: Tally
    other_chunks: Tally


def pyobjects(heap: Heap, pattern: str | None = None) -> PyObjects:
    """A row for each type name that matches ``pattern``, and the total of those. Raises NotAPython or Unsupported."""
    names = heap.objects.names
    census = heap.census()
    sums: dict[str, list[int]] = {}
    idle = [0, 0]
    for address, _flags, (count, size, idle_count, idle_size), owned in census.rows:
        row = sums.setdefault(names.name(address), [0, 0, 0, 0])
        for place, value in enumerate((count, size, owned[1], owned[3])):
            row[place] += value
        idle = [idle[0] + idle_count, idle[1] + idle_size]
    types = [TypeRow(name, *row) for name, row in sums.items() if row[0] or row[2]]
    types = [row for row in types if pattern is None or fnmatchcase(row.type, pattern)]
    types.sort(key=lambda row: (-(row.bytes + row.buffers), row.type))
    total = Count(*(sum(getattr(row, name) for row in types) for name in ("count", "bytes", "buffers", "reached")))
    in_pools, in_chunks, in_mapped, in_mimalloc = census.unclassified
    other = Tally(in_chunks[0] + in_mapped[0], in_chunks[1] + in_mapped[1])
    used = Tally(*map(sum, zip(*census.used)))
    roots = [Root(name, *row) for name, row in zip(heap.objects.roots.names[1:], census.roots[1:]) if row[0]]
    roots.sort(key=lambda root: (-root.bytes, root.name))
    return PyObjects(types, total, used, Tally(*idle), Tally(*census.roots[0]), roots, Tally(*map(sum, zip(in_pools, in_mimalloc))), other)
