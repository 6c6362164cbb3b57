"""List the memory of each arena, with sums as in ``malloc_stats``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from gdbheap.allocators.allocator import Allocator, ExtentArena, FreeCache, SizeClassUse
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.glibc.arenas import ArenaTotals, Glibc, HeapRange
from gdbheap.dataclass import dataclass
from gdbheap.documents import renamed_keys
from gdbheap.heap import Heap

BINS = {"fast": "fast", "tcache": "tcache", "free": "bins"}
"""The kind of free list for each state of a free chunk."""


@dataclass(frozen=True)
class ArenaHeap:
    """A heap of an arena: [start, end). ``top``: the size of the top chunk, 0 if the top chunk lies in another heap."""

    start: int
    end: int
    size: int
    top: int


@dataclass(frozen=True)
class Bins:
    """The free chunks of an arena on one kind of list.

    ``kind`` is "fast", "tcache" (of any thread) or "bins"; with ``--detail`` "unsorted", "small" and "large" replace
    "bins".
    """

    kind: str
    chunks: int
    bytes: int


@dataclass(frozen=True)
class Arena(ArenaTotals):
    """One arena; sizes in bytes. ``system`` and ``in_use`` are ``malloc_stats``' "system bytes" and "in use bytes"."""

    heaps: list[ArenaHeap] = field(default_factory=list)
    bins: list[Bins] = field(default_factory=list)

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``content`` of a format 1 file with today's key names."""
        return renamed_keys(content, {"used_chunks": "used_count", "free_chunks": "free_count"})


@dataclass(frozen=True)
class ThreadCache:
    """A thread's cache. ``arena``: the arena in which the cache lies; the chunks in it may belong to any arena."""

    tid: int
    name: str
    address: int
    arena: int | None
    chunks: int
    bytes: int


@dataclass(frozen=True)
class Mmapped:
    """The number and the bytes of the chunks with their own mapping.

    The figures are those of glibc's ``mp_`` if the chunks that were found confirm them; otherwise they count these
    chunks.
    """

    count: int
    bytes: int


@dataclass(frozen=True)
class Total:
    """The sums that ``malloc_stats`` prints under "Total": bytes of all arenas and of mmapped chunks."""

    system: int
    in_use: int


@dataclass(frozen=True)
class Whole:
    """The totals, in bytes, of an allocator without arenas, such as tcmalloc."""

    allocator: str
    module: str | None
    system: int
    in_use: int
    free: int


@dataclass(frozen=True)
class ArenaSummary:
    """An arena of any allocator; for an allocator without arenas, all its memory. A figure is None if the allocator
    does not have it."""

    allocator: str
    module: str | None
    index: int | None
    address: int | None
    system: int
    in_use: int
    free: int
    used_count: int | None = None
    free_count: int | None = None
    top: int | None = None
    fast: int | None = None
    tcache: int | None = None
    active: int | None = None
    dirty: int | None = None
    muzzy: int | None = None
    cached: int | None = None
    given_back: int | None = None
    choice: str | None = None
    heaps: list[ArenaHeap] = field(default_factory=list)
    bins: list[Bins] = field(default_factory=list)


@dataclass(frozen=True)
class AllArenasTotal:
    """Sums over all arenas of all allocators, including mmapped chunks."""

    system: int
    in_use: int
    free: int


@dataclass(frozen=True)
class AllArenas:
    """The JSON document of ``heap arenas``: the arenas of all allocators in one list, and their sums."""

    rows: list[ArenaSummary]
    total: AllArenasTotal
    mmapped_chunks: Mmapped | None
    thread_caches: list[ThreadCache]
    free_caches: list[FreeCache]
    classes: list[SizeClassUse]
    serving: list[str]


@dataclass(frozen=True)
class Arenas:
    """The answer of ``heap arenas``.

    ``wholes``: the allocators without arenas. ``allocator``: the name of the allocator that has ``arenas``, None if
    there is none.
    """

    arenas: list[Arena]
    mmapped: Mmapped
    total: Total
    threads: list[ThreadCache] = field(default_factory=list)
    others: list[ExtentArena] = field(default_factory=list)
    classes: list[SizeClassUse] = field(default_factory=list)
    serving: list[str] = field(default_factory=list)
    caches: list[FreeCache] = field(default_factory=list)
    wholes: list[Whole] = field(default_factory=list)
    allocator: str | None = None

    def as_document(self) -> AllArenas:
        """Return the JSON document, with the arenas of all allocators in one list."""
        rows = [_own_row(row, self.allocator or "") for row in self.arenas]
        rows += [_extent_row(row) for row in self.others]
        rows += [
            ArenaSummary(one.allocator, one.module, None, None, one.system, one.in_use, one.free) for one in self.wholes
        ]
        mapped = 0 if self.allocator is None else self.mmapped.bytes
        sums = [sum(getattr(row, name) for row in rows) for name in ("system", "in_use", "free")]
        total = AllArenasTotal(sums[0] + mapped, sums[1] + mapped, sums[2])
        own = None if self.allocator is None else self.mmapped
        return AllArenas(rows, total, own, self.threads, self.caches, self.classes, self.serving)


def _own_row(row: Arena, allocator: str) -> ArenaSummary:
    return ArenaSummary(
        allocator, None, row.index, row.address, row.system, row.in_use, row.free, row.used_count, row.free_count,
        row.top, row.fast, row.tcache, choice=str(row.index), heaps=row.heaps, bins=row.bins,
    )  # fmt: skip


def _extent_row(row: ExtentArena) -> ArenaSummary:
    system = row.active + row.dirty + row.muzzy
    return ArenaSummary(
        row.allocator, row.module, row.index, row.address, system, row.used, max(0, system - row.used),
        active=row.active, dirty=row.dirty, muzzy=row.muzzy, cached=row.cached, given_back=row.given_back,
        choice=row.choice,
    )  # fmt: skip


def _whole(found: Allocator) -> Whole:
    system = sum(end - start for start, end in [*found.ranges(), *found.single_blocks()])
    in_use = sum(size * count for size, count in found.used_sizes())
    owners = found.owners()
    return Whole(found.name, " and ".join(owners) or None, system, in_use, max(0, system - in_use))


def arenas(heap: Heap, detail: bool = False) -> Arenas:
    """Return the arenas in the order in which ``malloc_stats`` prints them.

    If malloc has no arenas, the answer has its size classes instead. ``detail``: follow the bins and list them by kind.
    Raises Unsupported if malloc is unknown.
    """
    found = heap.malloc
    others = other_arenas(heap)
    caches = [row for allocator in heap.standing_in for row in allocator.free_caches()]
    wholes = [_whole(allocator) for allocator in heap.standing_in if not allocator.extent_arenas()]
    if not isinstance(found, GlibcAllocator):
        return replace(_without_arenas(found, others), wholes=wholes)
    _walked, glibc = found.bins if detail else found.chunks, found.malloc
    heaps = _heaps_by_arena(glibc)
    rows = [
        Arena(
            **vars(totals),
            heaps=_heaps(glibc, totals, heaps.get(totals.index, [])),
            bins=_bins(found, totals.index, sums, detail),
        )
        for totals, sums in zip(glibc.totals(), glibc.sums())
    ]
    mapped = Mmapped(*glibc.mapped_totals(found.mapped))
    system = sum(row.system for row in rows) + mapped.bytes
    in_use = sum(row.in_use for row in rows) + mapped.bytes
    serving = heap.standing_in if found.idle else []
    classes = [row for allocator in serving if not allocator.extent_arenas() for row in allocator.size_classes()]
    return Arenas(
        rows, mapped, Total(system, in_use), _threads(found), others,
        sorted(classes, key=lambda row: row.size), [allocator.title for allocator in serving], caches, wholes,
        found.name,
    )  # fmt: skip


def other_arenas(heap: Heap) -> list[ExtentArena]:
    """Return the arenas of the allocators that replace the C library's malloc or are present next to it.

    The field ``choice`` of an arena is the value for the option ``--arena``: the number of the arena, if it is
    unambiguous. Otherwise a name precedes the number: the allocator's or, if several modules contain such an allocator,
    the module's.
    """
    rows = [row for allocator in heap.standing_in for row in allocator.extent_arenas()]
    kinds = {(row.allocator, row.root) for row in rows}
    is_alone = len(kinds) == 1 and heap.malloc.idle
    twice = {allocator for allocator, root in kinds if root}
    return [replace(row, choice=_choice(row, is_alone, row.allocator in twice)) for row in rows]


def _choice(row: ExtentArena, is_alone: bool, is_twice: bool) -> str:
    if is_alone:
        return str(row.index)
    return f"{row.module if is_twice else row.allocator}:{row.index}"


@dataclass(frozen=True)
class ArenaChoice:
    """An arena as a user names it.

    ``index``: the arena's number. ``of``: the name of the arena's allocator, or of the module that contains the
    allocator; None for the allocator that serves malloc.
    """

    index: int
    of: str | None = None

    def __str__(self) -> str:
        """Return the choice as a user types it."""
        return str(self.index) if self.of is None else f"{self.of}:{self.index}"


def chosen(rows: Iterable[ExtentArena], choice: ArenaChoice) -> list[ExtentArena]:
    """Return the arenas in ``rows`` that match ``choice``."""
    return [row for row in rows if row.index == choice.index and choice.of in (None, row.allocator, row.module)]


def _without_arenas(malloc: Allocator, others: list[ExtentArena]) -> Arenas:
    classes = malloc.size_classes()
    system = sum(end - start for start, end in [*malloc.ranges(), *malloc.single_blocks()])
    total = Total(system, sum(row.used_count * row.size for row in classes))
    return Arenas([], Mmapped(0, 0), total, [], others, classes)


def _heaps_by_arena(glibc: Glibc) -> dict[int, list[HeapRange]]:
    """Return the heaps of each arena, ascending, by the arena's index."""
    found: dict[int, list[HeapRange]] = {}
    for heap in sorted(glibc.heaps, key=lambda heap: heap.start):
        found.setdefault(heap.arena, []).append(heap)
    return found


def _heaps(glibc: Glibc, arena: ArenaTotals, heaps: list[HeapRange]) -> list[ArenaHeap]:
    top = glibc.arenas[arena.index].top
    return [
        ArenaHeap(heap.start, heap.end, heap.end - heap.start, arena.top if heap.start <= top < heap.end else 0)
        for heap in heaps
    ]


def _bins(glibc: GlibcAllocator, arena: int, sums: dict[str, tuple[int, int]], detail: bool) -> list[Bins]:
    kinds = {kind: sums[state] for state, kind in BINS.items()}
    if detail:
        del kinds["bins"]
        kinds.update(glibc.bins.by_kind(arena))
    return [Bins(kind, *found) for kind, found in kinds.items()]


def _threads(glibc: GlibcAllocator) -> list[ThreadCache]:
    names = {thread.tid: thread.name for thread in glibc.target.threads}
    return [
        ThreadCache(
            found.cache.tid, names.get(found.cache.tid, ""), found.cache.address,
            glibc.chunks.arena_of(found.cache.address), found.chunks, found.bytes,
        )
        for found in glibc.malloc.cache_totals()
    ]  # fmt: skip
