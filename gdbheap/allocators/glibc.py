"""glibc's heap at one stop: arenas, the stretches of memory they walk over, thread caches and mmapped chunks."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Callable

from gdbheap import _native
from gdbheap.allocators.glibc_locate import (
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
from gdbheap.target.ranges import Ranges, joined, subtract
from gdbheap.target.target import Damage, Target

HEAP_MAX = 64 << 20
HUGE_HEAP_PAGES = 4
MOST_HEAPS = 65536
PAGE = 4096
HEADER = 16
VERSION_MARK = b"stable release version "

Progress = Callable[[int, int], object]
RegionTotals = tuple[int, int, int, list[tuple[int, int]]]


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
    """One arena; sizes in bytes, headers included. ``system`` and ``in_use`` are ``malloc_stats``' "system bytes" and
    "in use bytes": all but top, bins and fast bins; thread caches count as in use there."""

    index: int
    address: int
    system: int
    in_use: int
    free: int
    fast: int
    tcache: int
    top: int
    used_chunks: int
    free_chunks: int


@dataclass(frozen=True)
class HeapRange:
    """Memory of one arena: [start, end), of which chunks lie from ``chunks`` on; up to ``reserve`` it may grow."""

    arena: int
    start: int
    chunks: int
    end: int
    reserve: int


@dataclass(frozen=True)
class CacheTotals:
    """What one thread's cache holds: chunks and their bytes, headers included."""

    cache: Tcache
    chunks: int
    bytes: int


@dataclass(frozen=True)
class MappedChunk:
    """A chunk with a mapping of its own: where the mapping starts, the chunk's header, and the bytes mapped."""

    base: int
    chunk: int
    size: int

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
        self.heaps: list[HeapRange] = []
        self.stretches = self._stretches()
        self.is_arena = ArenaTest([(stretch.start, stretch.end) for stretch in self.stretches])
        self.tcaches: list[Tcache] = find_tcaches(target, self.is_arena)
        self.safe_linking = self._detect_safe_linking()
        facts.add(
            "thread caches",
            f"{len(self.tcaches)} of {len(target.threads)} threads",
            "a chunk of the cache's size below each thread pointer",
        )
        facts.add(
            "safe-linking", "yes" if self.safe_linking else "no", "which decoding of the thread caches' links ends them"
        )
        self.version = _version(self.libc)
        if self.version:
            facts.add("glibc", self.version, f"text of {self.libc.path}, whose build-id is the one in memory")
        self._chunks: _native.Chunks | None = None
        self._mapped: list[MappedChunk] | None = None

    @property
    def main(self) -> MallocState:
        """``main_arena``."""
        return self.arenas[0]

    # Where the arenas' memory lies.

    def _stretches(self) -> list[Stretch]:
        heaps = [heap for index, state in enumerate(self.arenas[1:], 1) for heap in self._heaps_of(index, state)]
        extents = self._main_extents() if self.main.system_mem else []
        self.heaps += [HeapRange(0, start, start, end, end) for start, end in extents]
        main = [Stretch(0, *extent, self._top_in(extent), self.main.fast, True) for extent in extents]
        return main + heaps

    @property
    def reserves(self) -> Ranges:
        """The address space of the threads' heaps, what they have not used yet included."""
        return [(heap.start, heap.reserve) for heap in self.heaps if heap.arena]

    def heap_at(self, address: int) -> HeapRange | None:
        """The heap in whose address space ``address`` lies, or None."""
        return next((heap for heap in self.heaps if heap.start <= address < heap.reserve), None)

    def _top_in(self, extent: tuple[int, int]) -> int:
        return self.main.top if extent[0] <= self.main.top < extent[1] else 0

    def _main_extents(self) -> Ranges:
        """One stretch from the first ``sbrk`` to the end of top, or the many of an arena that ``sbrk`` once failed."""
        start = (self.par.sbrk_base + 15) // 16 * 16
        try:
            end = self.main.top + (self.target.space.u64(self.main.top + 8) & ~7)
        except Fault as fault:
            self._report(fault.args[0], "top chunk of the main arena", "bytes that can be read", "absent bytes")
            return []
        if not self.main.noncontiguous:
            limit = self._run_end(start)
            if not start <= self.main.top < end <= limit:
                self._report(self.main.top, "size of the top chunk", f"an end up to {limit:#x}", f"{end:#x}")
            return [(start, min(end, limit))] if start < min(end, limit) else []
        candidates = [(m.start, m.end) for m in self.target.mappings if m.anonymous and m.private and m.writable]
        ranges = subtract(joined(candidates), sorted(self.reserves))
        return _native.find_extents(self.target.space, ranges, self.main.top, PAGE)

    def _run_end(self, address: int) -> int:
        """Where the writable memory around ``address`` ends; the kernel may keep it as several mappings."""
        end = address
        mapping = self.target.mappings.find(end)
        while mapping is not None and mapping.writable and mapping.anonymous:
            end = mapping.end
            mapping = self.target.mappings.find(end)
        return end

    @property
    def heap_span(self) -> int:
        """Bytes of address space for each heap of a thread's arena, by which it is aligned."""
        huge = self.par.hp_pagesize
        return huge * HUGE_HEAP_PAGES if 0 < huge <= 1 << 30 else HEAP_MAX

    def _heaps_of(self, index: int, state: MallocState) -> list[Stretch]:
        """The heaps of a thread's arena: from the one that holds its top back to the first, by ``heap_info.prev``."""
        span = self.heap_span
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
        info_size = state.address % self.heap_span
        header = info_size + state.layout["size"] if is_first else info_size
        start = (heap + header + 15) // 16 * 16
        self.heaps.append(HeapRange(index, heap, start, end, heap + self.heap_span))
        top = state.top if heap <= state.top < end else 0
        return Stretch(index, start, end, top, state.fast, True)

    def _report(self, address: int, what: str, expected: str, found: str) -> None:
        self.damage.append(Damage(address, what, expected, found))

    def _detect_safe_linking(self) -> bool:
        """2.32 and later store links xor their own address shifted; the last entry of a list tells."""
        for tcache in self.tcaches:
            for entry, count in tcache.lists:
                for safe in (True, False):
                    if self._list_length(entry, safe, count + 1) == count:
                        return safe
        return True

    def _list_length(self, entry: int, safe: bool, most: int) -> int:
        length, at = 0, entry
        while at and length < most and at % 16 == 0 and self.is_arena(at):
            length += 1
            try:
                link = self.target.space.u64(at)
            except Fault:
                return -1
            at = link ^ (at >> 12) if safe else link
        return length if at == 0 else -1

    # The walk.

    def walk(self, progress: Progress | None = None) -> _native.Chunks:
        """Every block of every arena; kept. Raises KeyboardInterrupt."""
        if self._chunks is None:
            lists = [entry for tcache in self.tcaches for entry in tcache.lists]
            stretches = [Stretch(s.arena, s.start, s.end, s.top, s.fast, self.safe_linking) for s in self.stretches]
            space = self.target.space
            self._chunks, taken = _native.walk_chunks(space, stretches, lists, self.safe_linking, progress)
            self.damage.extend(Damage(*row) for row in self._chunks.damage)
            self._check_caches(lists, taken)
            self._check_books()
        return self._chunks

    def _check_caches(self, lists: Ranges, taken: list[int]) -> None:
        """A list shorter than its count is damaged; one entry less may be a thread that was stopped inside malloc."""
        for (entry, count), found in zip(lists, taken):
            if found + 1 < count:
                self._report(entry, "list of a thread cache", f"{count} entries", f"{found} before a link leads astray")

    def _check_books(self) -> None:
        """The walked bytes of each arena, headers included, must be its ``system_mem``."""
        regions = self.regions()
        for totals in self.totals():
            walked = sum(end - start for arena, start, end, _ in regions if arena == totals.index)
            walked += self.unwalked(totals.index)
            if walked != totals.system:
                what = f"bytes of arena {totals.index}"
                self._report(totals.address, what, str(totals.system), f"{walked} were walked")

    def unwalked(self, index: int) -> int:
        """Bytes of an arena in front of its first chunks: headers of heaps, a first break that is not 16-aligned."""
        if index:
            return sum(heap.chunks - heap.start for heap in self.heaps if heap.arena == index)
        # Extents are page-aligned.
        return -self.par.sbrk_base % HEADER if not self.main.noncontiguous else 0

    def regions(self) -> list[RegionTotals]:
        """(arena, start, end, [(chunks, bytes)] by state in the order of STATES) of every stretch."""
        return self.walk().totals()

    def sums(self) -> list[dict[str, tuple[int, int]]]:
        """Chunks and bytes by state, of every arena in the order of the ring."""
        sums = [[[0, 0] for _ in _native.STATES] for _ in self.arenas]
        for arena, _start, _end, tallies in self.regions():
            for state, (count, size) in enumerate(tallies):
                sums[arena][state][0] += count
                sums[arena][state][1] += size
        return [{state: (row[0], row[1]) for state, row in zip(_native.STATES, arena)} for arena in sums]

    def totals(self) -> list[ArenaTotals]:
        """Every arena in the order of the ring, as ``malloc_stats`` prints them."""
        return [_totals_of(index, state, sums) for index, (state, sums) in enumerate(zip(self.arenas, self.sums()))]

    def cache_totals(self) -> list[CacheTotals]:
        """What each thread's cache holds, in the order of the threads."""
        lists = [entry for tcache in self.tcaches for entry in tcache.lists]
        sums = iter(_native.sum_lists(self.target.space, self.walk(), lists, self.safe_linking))
        rows = [(tcache, [next(sums) for _ in tcache.lists]) for tcache in self.tcaches]
        return [CacheTotals(tcache, sum(n for n, _ in found), sum(size for _, size in found)) for tcache, found in rows]

    # mmapped chunks.

    def find_mapped(self, ranges: Ranges) -> list[MappedChunk]:
        """The mmapped chunks in ``ranges``, the anonymous memory that nobody else owns; kept."""
        if self._mapped is None:
            style = MmappedStyle(header_outside=self.main.layout["fastbinsY"] is None, page=PAGE)
            found = _native.find_mmapped(self.target.space, ranges, style)
            self._mapped = [MappedChunk(*row) for row in found]
            self._check_mapped()
        return self._mapped

    def _check_mapped(self) -> None:
        count, size = len(self._mapped or []), sum(chunk.size for chunk in self._mapped or [])
        if (count, size) != (self.par.n_mmaps, self.par.mmapped_mem):
            self.warnings.append(
                f"mp_ counts {self.par.n_mmaps} mmapped chunks of {self.par.mmapped_mem} bytes, "
                f"found were {count} of {size}"
            )

    def owned_ranges(self) -> Ranges:
        """What arenas own: the main heap and the reserves of the thread heaps, ascending."""
        main = [(s.start // PAGE * PAGE, s.end) for s in self.stretches if s.arena == 0]
        return sorted(main + self.reserves)

    def mapped_at(self, address: int) -> MappedChunk | None:
        """The mmapped chunk that holds ``address``, of those found; what memalign skipped before it is nobody's."""
        chunks = self._mapped or []
        index = bisect_right([chunk.base for chunk in chunks], address) - 1
        return chunks[index] if index >= 0 and chunks[index].chunk <= address < chunks[index].end else None


def _totals_of(index: int, state: MallocState, sums: dict[str, tuple[int, int]]) -> ArenaTotals:
    free, fast, tcache, top = (sums[name] for name in ("free", "fast", "tcache", "top"))
    return ArenaTotals(
        index=index,
        address=state.address,
        system=state.system_mem,
        in_use=state.system_mem - free[1] - fast[1] - top[1],
        free=free[1],
        fast=fast[1],
        tcache=tcache[1],
        top=top[1],
        used_chunks=sums["used"][0],
        free_chunks=free[0] + fast[0] + tcache[0],
    )


@dataclass(frozen=True)
class MmappedStyle:
    """How this glibc writes the header of an mmapped chunk (2.43 moved it out of ``size``)."""

    header_outside: bool
    page: int


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
