"""Count the blocks in use and the free blocks by size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import field, fields

from gdbheap import _native
from gdbheap.allocators.allocator import Allocator
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap


@dataclass(frozen=True)
class SizeRow:
    """The chunks of one exact size, with headers. ``used`` and ``free``: bytes; ``used_count`` and ``free_count``:
    chunks."""

    size: int
    used_count: int
    free_count: int
    used: int
    free: int


@dataclass(frozen=True)
class SizeTotal:
    """The sums over blocks of several sizes: how many blocks are used and how many are free, and their bytes."""

    used_count: int
    free_count: int
    used: int
    free: int


@dataclass(frozen=True)
class SizeRange:
    """The chunks with sizes in [start, end), where ``end`` is a power of two."""

    start: int
    end: int
    total: SizeTotal


@dataclass(frozen=True)
class OtherSizeRow(SizeRow):
    """The blocks of one size of an allocator other than glibc's. The blocks have no headers.

    ``groups``: the slabs, spans or pages with blocks of this size. ``asked``: bytes that the program asked for.
    ``spare``: groups that packing the blocks would empty. ``freed``: bytes that packing would free. A field is None if
    it is unknown.
    """

    groups: int | None = None
    asked: int | None = None
    spare: int | None = None
    freed: int | None = None


@dataclass(frozen=True)
class OtherSizes:
    """The blocks of an allocator other than glibc's, by the allocator's own sizes, ascending, with their sum."""

    allocator: str
    title: str
    sizes: list[OtherSizeRow]
    total: SizeTotal
    asked: int | None = None
    freed: int | None = None
    module: str | None = None


@dataclass(frozen=True)
class SizeOf:
    """The blocks of one size of an allocator. ``module``: the module that contains the allocator, if several modules
    contain an allocator of its kind."""

    allocator: str
    module: str | None
    size: int
    used_count: int
    free_count: int
    used: int
    free: int
    groups: int | None = None
    asked: int | None = None
    spare: int | None = None
    freed: int | None = None


@dataclass(frozen=True)
class AllSizesTotal:
    """Sums over all sizes of all allocators."""

    used: int
    free: int
    used_count: int
    free_count: int
    asked: int | None = None
    freed: int | None = None


@dataclass(frozen=True)
class AllSizes:
    """The JSON document of ``heap sizes``.

    ``mapped_count``, ``top`` and ``overhead`` are None if malloc is not glibc's.
    """

    rows: list[SizeOf]
    total: AllSizesTotal
    mapped_count: int | None = None
    top: int | None = None
    overhead: int | None = None


@dataclass(frozen=True)
class Sizes:
    """The answer of ``heap sizes``, by size, ascending.

    Chunks in bins, fast bins and thread caches count as free; mmapped chunks count as in use. ``mapped``: the number of
    mmapped chunks. ``total``, ``top`` (top chunks) and ``overhead`` add up to all memory that malloc has:
    ``total.system`` of ``heap arenas``. ``allocator``: the name of the allocator whose sizes are in ``sizes``; None if
    only ``others`` has sizes.
    """

    sizes: list[SizeRow]
    total: SizeTotal
    mapped: int
    top: int
    overhead: int
    others: list[OtherSizes] = field(default_factory=list)
    allocator: str | None = None

    def as_document(self) -> AllSizes:
        """Return the JSON document, with the sizes of all allocators in one list."""
        own = [SizeOf(self.allocator or "", None, *vars(row).values()) for row in self.sizes]
        rows = own + [_size_of(found, row) for found in self.others for row in found.sizes]
        names = [field.name for field in fields(AllSizesTotal)][:4]
        sums = [self.total, *(found.total for found in self.others)]
        more = [sum_of_known(getattr(found, name) for found in self.others) for name in ("asked", "freed")]
        total = AllSizesTotal(*(sum(getattr(one, name) for one in sums) for name in names), *more)
        if self.allocator is None:
            return AllSizes(rows, total)
        return AllSizes(rows, total, self.mapped, self.top, self.overhead)

    @property
    def ranges(self) -> list[SizeRange]:
        """The rows summed by powers of two, from the first range with chunks to the last."""
        rows: dict[int, list[SizeRow]] = {}
        for row in self.sizes:
            rows.setdefault(row.size.bit_length(), []).append(row)
        bits = range(min(rows, default=0), max(rows, default=-1) + 1)
        return [SizeRange(1 << bit >> 1, 1 << bit, _total(rows.get(bit, []))) for bit in bits]


def sizes(heap: Heap) -> Sizes:
    """Return a row for each exact size of blocks in use and free blocks. Raises Unsupported if malloc is unknown."""
    others = [row for allocator in heap.standing_in for row in _others(allocator)]
    found = heap.malloc
    if not isinstance(found, GlibcAllocator):
        return Sizes([], _total([]), 0, 0, 0, others)
    glibc, mapped = found.malloc, found.mapped
    rows = _native.count_sizes(found.chunks)
    counts = {row.size: (row.states[0], sum(row.states[1:])) for row in rows}
    for chunk in mapped:
        used, free = counts.get(chunk.end - chunk.chunk, (0, 0))
        counts[chunk.end - chunk.chunk] = (used + 1, free)
    sized = [SizeRow(size, used, free, size * used, size * free) for size, (used, free) in sorted(counts.items())]
    sums = glibc.sums()
    top = sum(arena["top"][1] for arena in sums)
    overhead = sum(arena[state][1] for arena in sums for state in ("fencepost", "foreign", "unexplained"))
    overhead += sum(glibc.unwalked(index) for index in range(len(sums)))
    overhead += sum(chunk.chunk - chunk.base for chunk in mapped)
    return Sizes(sized, _total(sized), len(mapped), top, overhead, others, found.name)


def _size_of(found: OtherSizes, row: OtherSizeRow) -> SizeOf:
    return SizeOf(found.allocator, found.module, **vars(row))


def _others(allocator: Allocator) -> list[OtherSizes]:
    """Return the table of an allocator's sizes; if several modules contain such an allocator, a table for each
    module."""
    owners = allocator.owners()
    return [_of_one(allocator, index, owner) for index, owner in enumerate(owners)] or [_of_all(allocator)]


def _of_one(allocator: Allocator, index: int, owner: str) -> OtherSizes:
    sized = [
        OtherSizeRow(
            row.size, row.used_count, row.free_count, row.size * row.used_count, row.size * row.free_count, row.groups,
            row.asked, row.spare,
            row.freed,
        )
        for row in allocator.size_classes(index)
    ]  # fmt: skip
    return _summed(allocator, f"{allocator.title} of {owner}", sized, owner)


def _of_all(allocator: Allocator) -> OtherSizes:
    used: Counter[int] = Counter()
    free: Counter[int] = Counter()
    for counts, rows in ((used, allocator.used_sizes()), (free, allocator.free_sizes())):
        for size, count in rows:
            counts[size] += count
    groups = {row.size: (row.groups, row.asked, row.spare, row.freed) for row in allocator.size_classes()}
    sized = [
        OtherSizeRow(size, used[size], free[size], size * used[size], size * free[size], *groups.get(size, ()))
        for size in sorted(used | free)
    ]
    return _summed(allocator, allocator.title, sized)


def _summed(allocator: Allocator, title: str, sized: list[OtherSizeRow], module: str | None = None) -> OtherSizes:
    asked, freed = (sum_of_known(getattr(row, name) for row in sized) for name in ("asked", "freed"))
    return OtherSizes(allocator.name, title, sized, _total(sized), asked, freed, module)


def sum_of_known(values: Iterable[int | None]) -> int | None:
    """Return the sum of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _total(rows: Iterable[SizeRow]) -> SizeTotal:
    sums = [0, 0, 0, 0]
    for row in rows:
        for place, value in enumerate((row.used_count, row.free_count, row.used, row.free)):
            sums[place] += value
    return SizeTotal(*sums)
