"""glibc's heap at one stop: arenas, the stretches of memory they walk over, thread caches and mmapped chunks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Callable

from gdbheap import _native
from gdbheap.allocators.glibc_extents import MainExtents
from gdbheap.allocators.glibc_locate import (
    SMALL_TCACHE_BINS,
    ArenaTest,
    MallocPar,
    MallocState,
    Tcache,
    find_main_arena,
    find_mp,
    find_tcaches,
)
from gdbheap.errors import Fault
from gdbheap.layout.facts import Facts
from gdbheap.target.elf import LoadedObject
from gdbheap.target.ranges import Ranges
from gdbheap.target.target import Damage, Target

HEAP_MAX = 64 << 20
HUGE_HEAP_PAGES = 4
MOST_HEAPS = 65536
PAGE = 4096
HEADER = 16
VERSION_MARK = b"stable release version "

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Stretch:
    """A stretch of one arena to walk: [start, end), with the top chunk's address if it lies here, else 0."""

    arena: int
    start: int
    end: int
    top: int
    fast: list[int]
    safe_linking: bool


@dataclass(frozen=True)
class ArenaTotals:
    """One arena by ``malloc_stats``' definitions; sizes in bytes, headers included."""

    index: int
    address: int
    system: int
    free: int
    fast: int
    tcache: int
    top: int
    used_chunks: int
    free_chunks: int

    @property
    def in_use(self) -> int:
        """``malloc_stats``' "in use bytes": all but top, bins and fast bins; thread caches count as in use there."""
        return self.system - self.free - self.fast - self.top


@dataclass(frozen=True)
class MappedChunk:
    """A chunk with a mapping of its own: where the mapping starts, the chunk's header, and the bytes mapped.

    ``cached``: it was freed into a thread cache (2.42 and later, where ``tcache_max`` is raised).
    """

    base: int
    chunk: int
    size: int
    cached: bool

    @property
    def end(self) -> int:
        """Where the mapping ends."""
        return self.base + self.size


class Glibc:
    """glibc's malloc in one target. Locating it happens at construction (raises Unsupported), walking on request."""

    def __init__(self, target: Target, facts: Facts) -> None:
        self.target = target
        self.arenas, self.libc = find_main_arena(target, facts)
        self.par: MallocPar = find_mp(target, self.main, self.libc, facts)
        self.damage: list[Damage] = []
        self.warnings: list[str] = []
        self.heap_reserves: Ranges = []
        self._heap_headers: Ranges = []
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
            "which decoding of the lists' first links leads to chunks",
        )
        self.version = _version(self.libc)
        if self.version:
            facts.add("glibc", self.version, f"text of {self.libc.path}, whose build-id is the one in memory")
        self._chunks: _native.Chunks | None = None
        self._mapped: list[MappedChunk] | None = None
        self._large: list[int] | None = None

    @property
    def main(self) -> MallocState:
        """``main_arena``."""
        return self.arenas[0]

    def _warn_of_lost_threads(self) -> None:
        """A thread's pointer points to itself. An older gdb writes zeros for stacks with guard regions (2.42)."""
        threads = [thread for thread in self.target.threads if thread.fs_base]
        lost = sum(self._word(thread.fs_base) != thread.fs_base for thread in threads)
        if lost and self.par.layout["tcache_count"] is not None:
            self.warnings.append(
                f"the thread-local data of {lost} of {len(threads)} threads is not here: "
                "free chunks in their caches are counted as used"
            )

    def _word(self, address: int) -> int | None:
        try:
            return self.target.space.u64(address)
        except Fault:
            return None

    # Where the arenas' memory lies.

    def _stretches(self) -> list[Stretch]:
        heaps = [heap for index, state in enumerate(self.arenas[1:], 1) for heap in self._heaps_of(index, state)]
        self._main_extents = MainExtents(self.target, self.main, self.par, self.heap_reserves, self._report)
        extents = self._main_extents.find() if self.main.system_mem else []
        main = [Stretch(0, *extent, self._top_in(extent), self.main.fast, True) for extent in extents]
        return main + heaps

    def _top_in(self, extent: tuple[int, int]) -> int:
        return self.main.top if extent[0] <= self.main.top < extent[1] else 0

    def _heap_span(self) -> int:
        huge = self.par.hp_pagesize
        return huge * HUGE_HEAP_PAGES if 0 < huge <= 1 << 30 else HEAP_MAX

    def _heaps_of(self, index: int, state: MallocState) -> list[Stretch]:
        """The heaps of a thread's arena: from the one that holds its top back to the first, by ``heap_info.prev``."""
        span = self._heap_span()
        first = state.address // span * span
        heap = state.top // span * span
        stretches: list[Stretch] = []
        seen: set[int] = set()
        while heap and heap not in seen and len(seen) < MOST_HEAPS:
            seen.add(heap)
            try:
                owner, previous, size = (self.target.space.u64(heap + offset) for offset in (0, 8, 16))
            except Fault as fault:
                self._report(fault.args[0], f"heap_info of arena {index}", "bytes that can be read", "absent bytes")
                break
            if owner != state.address or not 0 < size <= span:
                self._report(
                    heap, f"heap_info of arena {index}", f"ar_ptr {state.address:#x}", f"{owner:#x}, size {size:#x}"
                )
                break
            stretches.append(self._stretch_of_heap(index, state, heap, heap + size, heap == first))
            heap = previous
        return stretches

    def _stretch_of_heap(self, index: int, state: MallocState, heap: int, end: int, is_first: bool) -> Stretch:
        info_size = state.address % self._heap_span()
        header = info_size + state.layout["size"] if is_first else info_size
        start = (heap + header + 15) // 16 * 16
        self._heap_headers.append((heap, start))
        self.heap_reserves.append((heap, heap + self._heap_span()))
        top = state.top if heap <= state.top < end else 0
        return Stretch(index, start, end, top, state.fast, True)

    def _report(self, address: int, what: str, expected: str, found: str) -> None:
        self.damage.append(Damage(address, what, expected, found))

    def _detect_safe_linking(self) -> bool | None:
        """2.32 and later store links xor their own address shifted; the lists' first links tell. None: no list has any.

        The decoding that most of them take to a chunk or to the end of the list is right.
        """
        places = [entry for tcache in self.tcaches for _index, entry, _count in tcache.lists]
        places += [head + HEADER for state in self.arenas for head in state.fast if head]
        votes = [sum(self._leads_on(at, safe) for at in places) for safe in (False, True)]
        return votes[True] > votes[False] if places else None

    def _leads_on(self, at: int, safe: bool) -> bool:
        try:
            link = self.target.space.u64(at)
        except Fault:
            return False
        following = link ^ (at >> 12) if safe else link
        return following == 0 or (following % HEADER == 0 and self.is_arena(following))

    # The walk.

    def walk(self, progress: Progress | None = None) -> _native.Chunks:
        """Every block of every arena; kept. Raises KeyboardInterrupt."""
        if self._chunks is None:
            lists = [row for tcache in self.tcaches for row in self._arena_lists(tcache)]
            lists += [(at, 1) for at in self._large_entries() if self.is_arena(at)]
            stretches = [Stretch(s.arena, s.start, s.end, s.top, s.fast, self.safe_linking) for s in self.stretches]
            space = self.target.space
            self._chunks, taken = _native.walk_chunks(space, stretches, lists, self.safe_linking, progress)
            self.damage.extend(Damage(*row) for row in self._chunks.damage)
            self._check_caches(lists, taken)
            self._check_books()
        return self._chunks

    def _arena_lists(self, tcache: Tcache) -> Ranges:
        """(first entry, entries) of a cache's lists of small chunks."""
        return [(entry, count) for index, entry, count in tcache.lists if index < SMALL_TCACHE_BINS]

    def _large_entries(self) -> list[int]:
        """What the caches' lists of large chunks hold (2.42 and later): an arena's chunks and mmapped ones; kept."""
        if self._large is None:
            lists = [row for tcache in self.tcaches for row in tcache.lists if row[0] >= SMALL_TCACHE_BINS]
            self._large = [at for _index, entry, count in lists for at in self._entries(entry, count)]
        return self._large

    def _entries(self, entry: int, count: int) -> Iterator[int]:
        at = entry
        for _ in range(count):
            mapping = self.target.mappings.find(at) if at % HEADER == 0 else None
            if mapping is None or not mapping.writable:
                self._report(entry, "list of a thread cache", f"{count} entries", f"a link to {at:#x}")
                return
            yield at
            link = self.target.space.u64(at)
            at = link ^ (at >> 12) if self.safe_linking else link

    def _check_caches(self, lists: Ranges, taken: list[int]) -> None:
        """A list that leads astray, or ends before its count.

        One entry less may be a thread that was stopped inside malloc: then the list has an end.
        """
        self.damage.extend(damage for tcache in self.tcaches for damage in tcache.damage)
        for (entry, count), found in zip(lists, taken):
            if found < count and (found + 1 < count or not self._ends_after(entry, found)):
                self._report(entry, "list of a thread cache", f"{count} entries", f"{found} before a link leads astray")

    def _ends_after(self, entry: int, count: int) -> bool:
        at = entry
        try:
            for _ in range(count):
                link = self.target.space.u64(at)
                at = link ^ (at >> 12) if self.safe_linking else link
        except Fault:
            return False
        return at == 0

    def _check_books(self) -> None:
        """The walked bytes of each arena, headers included, must be its ``system_mem``."""
        for totals in self.totals():
            walked = sum(end - start for arena, start, end, _ in self.walk().totals() if arena == totals.index)
            if totals.index:
                firsts = {stretch.start for stretch in self.stretches if stretch.arena == totals.index}
                walked += sum(end - start for start, end in self._heap_headers if end in firsts)
            else:
                walked += self._main_extents.misalignment
            if walked != totals.system:
                what = f"bytes of arena {totals.index}"
                self._report(totals.address, what, str(totals.system), f"{walked} were walked")

    def totals(self) -> list[ArenaTotals]:
        """Every arena in the order of the ring, as ``malloc_stats`` prints them."""
        states = {state: number for number, state in enumerate(_native.STATES)}
        sums = [[[0, 0] for _ in states] for _ in self.arenas]
        for arena, _start, _end, tallies in self.walk().totals():
            for state, (count, size) in enumerate(tallies):
                sums[arena][state][0] += count
                sums[arena][state][1] += size
        return [self._totals_of(index, state, sums[index], states) for index, state in enumerate(self.arenas)]

    def _totals_of(self, index: int, state: MallocState, sums: list[list[int]], states: dict[str, int]) -> ArenaTotals:
        def size(name: str) -> int:
            return sums[states[name]][1]

        def count(*names: str) -> int:
            return sum(sums[states[name]][0] for name in names)

        return ArenaTotals(
            index=index,
            address=state.address,
            system=state.system_mem,
            free=size("free"),
            fast=size("fast"),
            tcache=size("tcache"),
            top=size("top"),
            used_chunks=count("used"),
            free_chunks=count("free", "fast", "tcache"),
        )

    # mmapped chunks.

    def find_mapped(self, ranges: Ranges) -> list[MappedChunk]:
        """The mmapped chunks in ``ranges``, the anonymous memory that nobody else owns; kept."""
        if self._mapped is None:
            found = self._search_mapped(ranges, moved=False) if self.par.n_mmaps else []
            if self.par.n_mmaps and sum(size for _, _, size in found) != self.par.mmapped_mem:
                found = min(self._search_mapped(ranges, moved=True), found, key=lambda rows: self._missing(rows)[0])
            cached = {at - HEADER for at in self._large_entries()}
            self._mapped = [MappedChunk(*row, cached=row[1] in cached) for row in found]
            if any(self._missing(found)):
                self.warnings.append(
                    f"mp_ counts {self.par.n_mmaps} mmapped chunks of {self.par.mmapped_mem} bytes, "
                    f"found were {len(found)} of {sum(size for _, _, size in found)}"
                )
        return self._mapped

    def _search_mapped(self, ranges: Ranges, moved: bool) -> list[tuple[int, int, int]]:
        style = MmappedStyle(self.main.layout["fastbinsY"] is None, PAGE, moved)
        return _native.find_mmapped(self.target.space, ranges, style)

    def _missing(self, found: list[tuple[int, int, int]]) -> tuple[int, int]:
        """(chunks, bytes) by which ``mp_`` differs. 2.43 and later count a chunk's header twice at each mremap."""
        excess = self.par.mmapped_mem - sum(size for _, _, size in found)
        unit = self.par.layout["mmapped_unit"]
        is_drift = unit == HEADER and excess > 0 and excess % unit == 0
        return abs(self.par.n_mmaps - len(found)), 0 if is_drift else abs(excess)

    def owned_ranges(self) -> Ranges:
        """What arenas own: the main heap and the reserves of the thread heaps, ascending."""
        main = [(s.start // PAGE * PAGE, s.end) for s in self.stretches if s.arena == 0]
        return sorted(main + self.heap_reserves)

    def mapped_at(self, address: int) -> MappedChunk | None:
        """The mmapped chunk that holds ``address``, of those found; what memalign skipped before it is nobody's."""
        chunks = self._mapped or []
        index = bisect_right([chunk.base for chunk in chunks], address) - 1
        return chunks[index] if index >= 0 and chunks[index].chunk <= address < chunks[index].end else None


@dataclass(frozen=True)
class MmappedStyle:
    """How this glibc writes the header of an mmapped chunk (2.43 moved it out of ``size``), and where to look for it.

    ``moved``: also where mremap has taken it, off the alignment that was asked of memalign.
    """

    header_outside: bool
    page: int
    moved: bool


def _version(libc: LoadedObject) -> str | None:
    """``2.36`` from the banner in libc's file, if that file is the one that is loaded."""
    if libc.file is None:
        return None
    try:
        with open(libc.file, "rb") as stream:
            text = stream.read(64 << 20)
    except OSError:
        return None
    place = text.find(VERSION_MARK)
    version = text[place + len(VERSION_MARK) :][:8].split(b".\n")[0].split(b"\n")[0] if place >= 0 else b""
    return version.decode("ascii", "replace").rstrip(".") or None
