"""glibc's heap in a stopped process: its arenas, the contiguous ranges of memory (stretches) that hold their chunks,
its thread caches and its mmapped chunks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Callable

from gdbheap import _native
from gdbheap.allocators.glibc.locate import (
    LARGEST_FLAGS,
    LARGEST_LOCK,
    SMALL_TCACHE_BINS,
    ArenaTest,
    MallocPar,
    MallocState,
    Tcache,
    find_main_arena,
    find_mp,
    find_tcaches,
    read_state,
)
from gdbheap.allocators.glibc.main_arena import MainExtents
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.facts import Facts
from gdbheap.machines.machine import USER_END
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.target import Damage, Target
from gdbheap.text import named

HEAP_MAX = 64 << 20
HUGE_HEAP_PAGES = 4
MAX_HEAPS = 65536
HEADER = 16
SMALLEST_CHUNK = 32
VERSION_MARK = b"stable release version "

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class CacheList:
    """A list of a thread cache: its first entry, the number of its entries, and the size of its chunks (0: any size).

    ``whole``: True if the list must end after its last entry; False if the entries are part of a longer list.
    """

    first: int
    entries: int
    size: int
    whole: bool


@dataclass(frozen=True)
class Stretch:
    """A contiguous range [start, end) of chunks in the arena with the index ``arena``.

    ``top``: the address of the top chunk if it lies in this range, otherwise 0. ``fast``: the heads of the arena's fast
    bins.
    """

    arena: int
    start: int
    end: int
    top: int
    fast: list[int]


@dataclass(frozen=True)
class ArenaTotals:
    """The totals of one arena; sizes in bytes, headers included.

    ``system`` and ``in_use`` are the "system bytes" and "in use bytes" of ``malloc_stats``. They are sums over the
    walked chunks, because the arena's own count may be damaged. ``in_use`` includes chunks in thread caches: it is
    everything but top, bins and fast bins."""

    index: int
    address: int
    system: int
    in_use: int
    free: int
    fast: int
    tcache: int
    top: int
    used_count: int
    free_count: int


@dataclass(frozen=True)
class HeapRange:
    """A heap of one arena, [start, end). ``chunks``: the address of its first chunk. ``reserve``: the address up to
    which it can grow."""

    arena: int
    start: int
    chunks: int
    end: int
    reserve: int


@dataclass(frozen=True)
class CacheTotals:
    """The contents of one thread's cache: the number of chunks, and their bytes with headers."""

    cache: Tcache
    chunks: int
    bytes: int


@dataclass(frozen=True)
class MappedChunk:
    """A chunk that malloc got with mmap, in its own mapping.

    ``base``: the start of the mapping. ``chunk``: the address of the chunk's header. ``size``: the bytes of the
    mapping. ``cached``: the chunk was freed into a thread cache (glibc 2.42 and later, if ``tcache_max`` is raised).
    """

    base: int
    chunk: int
    size: int
    cached: bool

    @property
    def end(self) -> int:
        """The address after the last byte of the mapping."""
        return self.base + self.size


class Glibc:
    """glibc's malloc in one target. The constructor locates malloc's data, or raises Unsupported; ``walk`` reads the
    chunks."""

    def __init__(self, target: Target, facts: Facts) -> None:
        self.target = target
        self.arenas, self.libc = find_main_arena(target, facts)
        self.par: MallocPar = find_mp(target, self.main, self.libc, facts)
        self.damage: list[Damage] = []
        self._check_ring()
        self.warnings: list[str] = []
        self.heaps: list[HeapRange] = []
        self.stretches = self._stretches()
        self.is_arena = ArenaTest([(stretch.start, stretch.end) for stretch in self.stretches])
        self.tcaches: list[Tcache] = find_tcaches(target, self.par, self.is_arena)
        self._warn_of_lost_threads()
        safe_linking = self._detect_safe_linking()
        self.safe_linking = bool(safe_linking)
        facts.add(
            "thread caches",
            f"{len(self.tcaches)} of {len(target.threads)} threads",
            "a chunk of the cache's size below each thread pointer",
        )
        facts.add(
            "safe-linking",
            {True: "yes", False: "no", None: "unknown, and not needed: no list has a link"}[safe_linking],
            "the decoding with which the lists' first links point to chunks",
        )
        self.version = _version(self.libc)
        if self.version:
            facts.add(
                "glibc", self.version, f"text of {named(self.libc.path)}, whose build-id equals the one in memory"
            )
        self._chunks: _native.Chunks | None = None
        self._mapped: list[MappedChunk] | None = None

    @property
    def main(self) -> MallocState:
        """The state of the main arena."""
        return self.arenas[0]

    @property
    def idle(self) -> bool:
        """Whether no arena has memory from the kernel and there is no mmapped chunk."""
        return not any(state.system_mem for state in self.arenas) and not self.par.n_mmaps

    def _warn_of_lost_threads(self) -> None:
        """Add a warning if some threads' thread-local data is absent: their thread caches are then missing.

        The data is absent if the word at a thread pointer is not the thread pointer itself. This happens with glibc
        2.42, whose thread stacks have guard regions. An older gdb writes zeros into a core instead of such stacks."""
        if not self.target.machine.storage.has_self_pointer:
            return
        pointers = [thread.thread_pointer for thread in self.target.threads if thread.thread_pointer]
        lost = sum(self._word(pointer) != pointer for pointer in pointers)
        if lost and self.par.layout["tcache_count"] is not None:
            self.warnings.append(
                f"the thread-local data of {lost} of {len(pointers)} threads is missing: "
                "free chunks in their caches count as used"
            )

    def _word(self, address: int) -> int | None:
        try:
            return self.target.space.word(address)
        except Fault:
            return None

    def _check_ring(self) -> None:
        """Report a break in the circular list of arenas, and add the arenas that are missing from it.

        The missing arenas are found by the field ``ar_ptr`` of their heaps. Arenas with impossible mutexes or flags are
        reported too.
        """
        last = self.arenas[-1]
        if last.next != self.main.address:
            what = f"next of arena {len(self.arenas) - 1}"
            self._report(
                last.address + last.layout["next"],
                what,
                "a link to another arena, or to the first arena",
                f"{last.next:#x}",
            )
            known = {state.address for state in self.arenas}
            lost = sorted({owner for _heap, owner in self._owned_heaps if owner not in known})
            self.arenas += [read_state(self.target, owner, last.layout) for owner in lost]
        for index, state in enumerate(self.arenas):
            if state.lock > LARGEST_LOCK or state.flags > LARGEST_FLAGS:
                what, found = f"mutex and flags of arena {index}", f"{state.lock:#x} and {state.flags:#x}"
                self._report(state.address, what, f"at most {LARGEST_LOCK} and {LARGEST_FLAGS}", found)

    @cached_property
    def _owned_heaps(self) -> list[tuple[int, int]]:
        """All memory that looks like a heap of a thread's arena, as (address of the heap, address of the arena).
        gdbheap searches for such memory only after it has found damage.
        """
        found = []
        span, page = self.heap_span, self.target.machine.page
        for heap in self._backed_places(span):
            owner = self._word(heap)
            if owner and self._word(owner // span * span) == owner and owner % span < page:
                found.append((heap, owner))
        return found

    def _backed_places(self, span: int) -> Iterator[int]:
        """Yield the addresses in writable anonymous memory that are multiples of ``span`` and whose bytes are present.

        Ranges of absent memory are skipped as a whole, because a core may claim any amount of memory."""
        for mapping in self.target.mappings:
            if not (mapping.writable and mapping.anonymous):
                continue
            at = mapping.start
            while (backed := self.target.space.next_backed(at)) is not None and backed < mapping.end:
                place = -(-backed // span) * span
                if place == backed:
                    yield place
                at = place + span if place == backed else place

    # The memory of the arenas.

    def _stretches(self) -> list[Stretch]:
        heaps = [heap for index, state in enumerate(self.arenas[1:], 1) for heap in self._heaps_of(index, state)]
        # ``main_extents`` is not stored in ``self``: it has ``self._report``, so that would be a cycle, which would
        # keep the target's files open.
        main_extents = MainExtents(self.target, self.main, self.par, self.reserves, self._report)
        self._misalignment = main_extents.misalignment
        extents = main_extents.find() if self.main.system_mem else []
        self.heaps += [HeapRange(0, start, start, end, end) for start, end in extents]
        main = [Stretch(0, *extent, self._top_in(extent), self.main.fast) for extent in extents]
        return main + heaps

    @property
    def reserves(self) -> Ranges:
        """The address space of all threads' heaps, including the part that they do not use yet."""
        return [(heap.start, heap.reserve) for heap in self.heaps if heap.arena]

    def heap_at(self, address: int) -> HeapRange | None:
        """Return the heap whose address space holds ``address``, or None."""
        heaps, starts = self._by_start
        place = bisect_right(starts, address) - 1
        return heaps[place] if place >= 0 and address < heaps[place].reserve else None

    @cached_property
    def _by_start(self) -> tuple[list[HeapRange], list[int]]:
        """The heaps in address order, and the list of their start addresses."""
        heaps = sorted(self.heaps, key=lambda heap: heap.start)
        return heaps, [heap.start for heap in heaps]

    def _top_in(self, extent: tuple[int, int]) -> int:
        return self.main.top if extent[0] <= self.main.top < extent[1] else 0

    @property
    def heap_span(self) -> int:
        """The address space of each heap of a thread's arena, in bytes. Each heap begins at a multiple of this size."""
        huge = self.par.hp_pagesize
        is_size = 0 < huge <= 1 << 30 and self.target.machine.is_paged(huge)
        return huge * HUGE_HEAP_PAGES if is_size else HEAP_MAX

    def _heaps_of(self, index: int, state: MallocState) -> list[Stretch]:
        """Return the stretches of a thread's arena, one for each heap. The search follows ``heap_info.prev`` from the
        heap that holds the top back to the first heap."""
        span = self.heap_span
        first = state.address // span * span
        heap = state.top // span * span
        if self._word(heap) != state.address:
            own = [(heap, self._word(heap + 16) or 0) for heap, owner in self._owned_heaps if owner == state.address]
            ends = [(heap, self._end_of_heap(index, heap, size)) for heap, size in own if 0 < size <= span]
            return [self._stretch_of_heap(index, state, *pair, pair[0] == first) for pair in ends]
        stretches: list[Stretch] = []
        seen: set[int] = set()
        while heap and heap not in seen and len(seen) < MAX_HEAPS:
            seen.add(heap)
            try:
                owner, previous, size = (self.target.space.word(heap + offset) for offset in (0, 8, 16))
            except Fault as fault:
                what, expected = f"heap_info of arena {index}", "bytes that can be read"
                self.damage.append(Damage(fault.args[0], what, expected, "absent bytes", is_absent=True))
                break
            if owner != state.address or not 0 < size <= span:
                self._report(
                    heap, f"heap_info of arena {index}", f"ar_ptr {state.address:#x}", f"{owner:#x}, size {size:#x}"
                )
                break
            end = self._end_of_heap(index, heap, size)
            stretches.append(self._stretch_of_heap(index, state, heap, end, heap == first))
            heap = previous
        return stretches

    @cached_property
    def _mapped_runs(self) -> Ranges:
        """The mapped address space, ascending, with adjacent mappings joined."""
        return joined(self.target.mappings.ranges())

    def _end_of_heap(self, index: int, heap: int, size: int) -> int:
        """Return the end of a thread's heap of ``size`` bytes, but not beyond the mapped memory.

        ``heap_info`` is reported as damaged if the memory is mapped only in part."""
        index_of_run = bisect_left(self._mapped_runs, (heap + 1,)) - 1
        end = max(heap, self._mapped_runs[index_of_run][1])
        if end < heap + size:
            self._report(heap + 16, f"size in heap_info of arena {index}", f"at most {end - heap:#x}", f"{size:#x}")
        return min(end, heap + size)

    def _stretch_of_heap(self, index: int, state: MallocState, heap: int, end: int, is_first: bool) -> Stretch:
        info_size = state.address % self.heap_span
        header = info_size + state.layout["size"] if is_first else info_size
        start = (heap + header + 15) // 16 * 16
        self.heaps.append(HeapRange(index, heap, start, end, heap + self.heap_span))
        top = state.top if heap <= state.top < end else 0
        return Stretch(index, start, end, top, state.fast)

    def _report(self, address: int, what: str, expected: str, found: str) -> None:
        self.damage.append(Damage(address, what, expected, found))

    def _detect_safe_linking(self) -> bool | None:
        """Return whether the links of free lists are mangled. None if no list has a link.

        glibc 2.32 and later store a link xor its own address shifted right by 12. Each link is decoded in both ways, as
        mangled and as plain. With the right decoding, more links point to a chunk or end their list.
        """
        places = [entry for tcache in self.tcaches for _index, entry, _count in tcache.lists]
        places += [head + HEADER for state in self.arenas for head in state.fast if head]
        votes = [sum(self._leads_on(at, safe) for at in places) for safe in (False, True)]
        return votes[True] > votes[False] if places else None

    def _leads_on(self, at: int, safe: bool) -> bool:
        try:
            following = self._link(at, safe)
        except Fault:
            return False
        return following == 0 or (following % HEADER == 0 and self.is_arena(following))

    def _link(self, at: int, safe: bool) -> int:
        """Return the entry that the link at ``at`` points to; ``safe``: the link is mangled. Raises Fault."""
        link = self.target.space.word(at)
        return link ^ (at >> 12) if safe else link

    # The walk.

    def walk(self, progress: Progress | None = None, collects: bool = False) -> _native.Chunks:
        """Walk every chunk of every arena. The result is kept for later calls.

        ``collects``: also collect the links of free chunks, so that following the bins needs no second walk. Raises
        KeyboardInterrupt."""
        if self._chunks is None:
            lists = [row for _tcache, rows in self._cache_lists for row in rows]
            self._chunks, taken = _native.walk_chunks(
                self.target.space, self.stretches, lists, self.safe_linking, collects, progress
            )
            self.damage.extend(map(Damage.of, self._chunks.damage))
            self._check_caches(lists, taken)
            self._check_books()
        return self._chunks

    @cached_property
    def _cache_lists(self) -> list[tuple[Tcache, list[CacheList]]]:
        return [(tcache, self._lists(tcache)) for tcache in self.tcaches]

    def _lists(self, tcache: Tcache) -> list[CacheList]:
        """Return the lists of free chunks in a thread's cache.

        Lists of large chunks can also hold mmapped chunks. Therefore such a list is split: each of its chunks that lies
        in an arena is returned as a list with one entry.
        """
        small = [
            CacheList(entry, count, SMALLEST_CHUNK + HEADER * index, True)
            for index, entry, count in tcache.lists
            if index < SMALL_TCACHE_BINS
        ]
        return small + [CacheList(at, 1, 0, False) for at in self._large_entries[tcache.address] if self.is_arena(at)]

    @cached_property
    def _large_entries(self) -> dict[int, list[int]]:
        """The entries of the lists of large chunks (glibc 2.42 and later), by the address of the cache."""
        return {tcache.address: list(self._large_entries_of(tcache)) for tcache in self.tcaches}

    def _large_entries_of(self, tcache: Tcache) -> Iterator[int]:
        for index, entry, count in tcache.lists:
            if index >= SMALL_TCACHE_BINS:
                yield from self._entries(entry, count)

    def _entries(self, entry: int, count: int) -> Iterator[int]:
        at = entry
        for _ in range(count):
            mapping = self.target.mappings.find(at) if at % HEADER == 0 else None
            if mapping is None or not mapping.writable:
                self._report(entry, "list of a thread cache", f"{count} entries", f"a link to {at:#x}")
                return
            yield at
            try:
                at = self._link(at, self.safe_linking)
            except Fault as fault:
                self._report(entry, "list of a thread cache", f"{count} entries", str(fault))
                return

    def _check_caches(self, lists: list[CacheList], taken: list[_native.TakenList]) -> None:
        """Report each list of a thread cache that has a bad link, or whose number of entries differs from its count."""
        self.damage.extend(damage for tcache in self.tcaches for damage in tcache.damage)
        for row, found in zip(lists, taken):
            if found.entries < row.entries or (row.whole and found.end):
                expected, left = f"{row.entries} entries", f"{found.entries}, and then a link to {found.end:#x}"
                self._report(row.first, "list of a thread cache", expected, left)

    def _check_books(self) -> None:
        """Report each arena in which the bytes of the walked chunks, headers included, differ from ``system_mem``."""
        tops = [sums["top"][0] for sums in self.sums()]
        for totals, state in zip(self.totals(), self.arenas):
            self._check_top(totals.index, tops[totals.index])
            if totals.system != state.system_mem:
                what = f"bytes of arena {totals.index}"
                self._report(totals.address, what, str(state.system_mem), f"{totals.system} were walked")

    def _check_top(self, index: int, tops: int) -> None:
        """Report an arena whose ``top`` is not the start of its last chunk.

        ``tops``: how many of the arena's stretches end with a top chunk. An arena without chunks needs no top chunk."""
        state = self.arenas[index]
        initial = state.address + state.layout["bins"] - HEADER
        if not tops and state.system_mem and state.top != initial:
            place = state.address + state.layout["top"]
            self._report(place, f"top of arena {index}", "the start of its last chunk", f"{state.top:#x}")

    def unwalked(self, index: int) -> int:
        """Return the bytes of an arena before its first chunks.

        In the main arena, these bytes lie before the first 16-byte boundary. In other arenas, they are heap headers.
        """
        return self._headers.get(index, 0) if index else self._misalignment

    @cached_property
    def _headers(self) -> dict[int, int]:
        """The bytes before the first chunks in the threads' heaps, by the index of the arena."""
        found: dict[int, int] = {}
        for heap in self.heaps:
            found[heap.arena] = found.get(heap.arena, 0) + heap.chunks - heap.start
        return found

    def regions(self) -> list[_native.RegionTotals]:
        """Return the number and the bytes of the chunks in each state, for every run of chunks."""
        return self.walk().totals()

    def sums(self) -> list[dict[str, tuple[int, int]]]:
        """Return {state: (number of chunks, their bytes)} for each arena, in the order of the arenas' circular list."""
        sums = [[[0, 0] for _ in _native.STATES] for _ in self.arenas]
        for region in self.regions():
            for sum_of, tally in zip(sums[region.arena], region.states):
                sum_of[0] += tally.count
                sum_of[1] += tally.bytes
        return [{state: (row[0], row[1]) for state, row in zip(_native.STATES, arena)} for arena in sums]

    def totals(self) -> list[ArenaTotals]:
        """Return the totals of each arena in the order of their circular list, in the terms of ``malloc_stats``."""
        system = [self.unwalked(index) for index in range(len(self.arenas))]
        for region in self.regions():
            system[region.arena] += region.end - region.start
        return [
            _totals_of(index, state.address, size, sums)
            for index, (state, size, sums) in enumerate(zip(self.arenas, system, self.sums()))
        ]

    def cache_totals(self) -> list[CacheTotals]:
        """Return the contents of each thread's cache, in the order of the threads."""
        lists = [row for _tcache, rows in self._cache_lists for row in rows]
        sums = iter(_native.sum_lists(self.target.space, self.walk(), lists, self.safe_linking))
        rows = [(tcache, [next(sums) for _ in own]) for tcache, own in self._cache_lists]
        return [CacheTotals(tcache, sum(s.count for s in found), sum(s.bytes for s in found)) for tcache, found in rows]

    # Mmapped chunks.

    def find_mapped(self, ranges: Ranges) -> list[MappedChunk]:
        """Return the mmapped chunks in ``ranges``, the anonymous memory without another owner.

        The result is kept for later calls."""
        if self._mapped is None:
            found = self._search_mapped(ranges, moved=False) if self.par.n_mmaps else []
            if self.par.n_mmaps and sum(row.size for row in found) != self.par.mmapped_mem:
                found = min(self._search_mapped(ranges, moved=True), found, key=lambda rows: self._missing(rows)[0])
            cached = {at - HEADER for at in chain.from_iterable(self._large_entries.values())}
            self._mapped = [MappedChunk(row.base, row.chunk, row.size, row.chunk in cached) for row in found]
            if any(self._missing(found)):
                self.warnings.append(
                    f"glibc counts {self.par.mmapped_mem} bytes in {self.par.n_mmaps} mmapped chunks (mp_), but "
                    f"gdbheap found {sum(row.size for row in found)} bytes in {len(found)}: the difference counts as "
                    "other memory"
                )
        return self._mapped

    def likely_mapped(self, ranges: Ranges) -> Ranges:
        """Return the memory in ``ranges`` that looks like mmapped chunks, before other owners of the memory are
        known."""
        found = self._search_mapped(ranges, moved=False) if self.par.n_mmaps else []
        return [(row.base, row.base + row.size) for row in found]

    def check_mapped(self) -> None:
        """Report damage if fewer mmapped chunks were found than ``mp_`` counts.

        A surplus is not reported, because memory can look like an mmapped chunk by chance."""
        found = self._mapped or []
        if len(found) <= self.par.n_mmaps and any(self._missing(found)):
            place = self.par.address + self.par.layout["n_mmaps"]
            expected = f"{self.par.n_mmaps} of {self.par.mmapped_mem} bytes, as mp_ counts"
            self._report(place, "mmapped chunks", expected, f"{len(found)} of {sum(chunk.size for chunk in found)}")

    def mapped_totals(self, found: Sequence[MappedChunk]) -> tuple[int, int]:
        """Return the number and the bytes of the mmapped chunks: the counts of ``mp_`` if the chunks in ``found``
        confirm them, otherwise the counts of ``found``."""
        if any(self._missing(found)):
            return len(found), sum(chunk.size for chunk in found)
        return self.par.n_mmaps, self.par.mmapped_mem

    def _search_mapped(self, ranges: Ranges, moved: bool) -> list[_native.MappedRow]:
        style = MmappedStyle(self.main.layout["fastbinsY"] is None, moved)
        return _native.find_mmapped(self.target.space, ranges, style)

    def _missing(self, found: Sequence[_native.MappedRow | MappedChunk]) -> tuple[int, int]:
        """Return the differences in number and in bytes between the chunks in ``found`` and the counts of ``mp_``.

        glibc 2.43 and later count a chunk's header twice at each mremap. Bytes that this double count explains are left
        out.
        """
        excess = self.par.mmapped_mem - sum(row.size for row in found)
        unit = self.par.layout["mmapped_unit"]
        is_drift = unit == HEADER and 0 < excess < USER_END and excess % unit == 0
        return abs(self.par.n_mmaps - len(found)), 0 if is_drift else abs(excess)

    def owned_ranges(self) -> Ranges:
        """Return the address space of the arenas, ascending: the main heap, and the threads' heaps with their reserved
        space."""
        main = [(self.target.machine.page_down(s.start), s.end) for s in self.stretches if s.arena == 0]
        return sorted(main + self.reserves)

    def mapped_at(self, address: int) -> MappedChunk | None:
        """Return the mmapped chunk that holds ``address``, or None. If memalign skipped bytes before the chunk, these
        bytes belong to no chunk."""
        chunks = self._mapped or []
        index = bisect_right([chunk.base for chunk in chunks], address) - 1
        return chunks[index] if index >= 0 and chunks[index].chunk <= address < chunks[index].end else None


def _totals_of(index: int, address: int, system: int, sums: dict[str, tuple[int, int]]) -> ArenaTotals:
    free, fast, tcache, top = (sums[name] for name in ("free", "fast", "tcache", "top"))
    return ArenaTotals(
        index=index,
        address=address,
        system=system,
        in_use=system - free[1] - fast[1] - top[1],
        free=free[1],
        fast=fast[1],
        tcache=tcache[1],
        top=top[1],
        used_count=sums["used"][0],
        free_count=free[0] + fast[0] + tcache[0],
    )


@dataclass(frozen=True)
class MmappedStyle:
    """The header format of mmapped chunks in this glibc, and the addresses at which gdbheap searches for them.

    ``header_outside``: the header's ``size`` does not include the header (2.43 and later). ``moved``: also search for
    chunks that mremap may have moved. Such a chunk may lack the alignment that memalign gave it."""

    header_outside: bool
    moved: bool


def _version(libc: LoadedObject) -> str | None:
    """Return the version, such as ``2.36``, from the banner in libc's file; None if the file cannot be read."""
    if libc.elf is None:
        return None
    try:
        with libc.elf.open() as stream:
            text = stream.read(64 << 20)
    except OSError:
        return None
    place = text.find(VERSION_MARK)
    version = text[place + len(VERSION_MARK) :][:8].split(b".\n")[0].split(b"\n")[0] if place >= 0 else b""
    return version.decode("ascii", "replace").rstrip(".") or None
