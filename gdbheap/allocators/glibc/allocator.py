"""Implement ``Allocator`` for glibc's malloc, from the data that ``Glibc`` located and the results of the walk over the
arenas."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from gdbheap import _native
from gdbheap.allocators.allocator import (
    MMAPPED,
    Allocator,
    Block,
    DrawnArea,
    HoleRow,
    KeepReason,
    LedgerLine,
    Member,
    Piece,
    PinRow,
    PinSums,
    State,
    Surroundings,
    WalkedBlocks,
    WalkedCounts,
)
from gdbheap.allocators.glibc.arenas import HEADER, Glibc, MappedChunk
from gdbheap.allocators.glibc.bins import BinReader, ChunkRow, list_names
from gdbheap.allocators.glibc.mutation import Changes
from gdbheap.allocators.glibc.trim import Trim, given_tops, predict
from gdbheap.allocators.line_ids import BREAK_OF_OTHERS, UNEXPLAINED, LineId, PartId, line_below, lines_below
from gdbheap.allocators.request_sizes import of_chunk
from gdbheap.dataclass import dataclass
from gdbheap.targets.mappings import HUGE_PAGES
from gdbheap.targets.ranges import Ranges, joined, subtract
from gdbheap.targets.target import Damage

NAME = LineId("glibc")
USED, MAPPED, FREE, TOP, OVERHEAD = lines_below(NAME, "used", "mmapped", "free", "top", "overhead")
CACHED_MAPPED = line_below(FREE, "mmapped")
# The ledger line of each part of an arena. The lines of one arena have its index appended.
OF_ARENAS: dict[PartId, LineId] = {
    "used": USED,
    "free": FREE,
    "cached": FREE,
    "top": TOP,
    "header": OVERHEAD,
}
PARTS_OF_ARENAS = {
    USED: State.USED,
    FREE: State.FREE,
    TOP: State.TOP,
    OVERHEAD: State.OVERHEAD,
}
WHY_KEPT = (
    ("fragments", "on pages shared with blocks in use (fragmentation)"),
    ("tcache", "in thread caches"),
    ("locked", "in locked pages (mlock)"),
    ("hugetlb", "in hugetlbfs pages, which malloc_trim() does not return"),
    ("top", "in top chunks that malloc_trim() leaves"),
)
OF_OTHERS: dict[PartId, LineId] = {"foreign": BREAK_OF_OTHERS, "unexplained": UNEXPLAINED}
UNREAD = _native.STATES.index("unexplained")
IN_USE, FOREIGN = _native.STATES.index("used"), _native.STATES.index("foreign")


@dataclass(frozen=True)
class ChunkRequest:
    """A request for a list of chunks (native/core/src/allocators/glibc/listing.rs).

    ``states``: a bit mask of the wanted states, in the order of ``_native.STATES``. ``minimum`` and ``maximum``: bytes,
    header included. ``arena``: the index of one arena, or None for all.
    """

    states: int
    minimum: int = 0
    maximum: int = sys.maxsize
    arena: int | None = None


class GlibcAllocator(Allocator):
    """glibc's malloc in one target. The constructor raises Unsupported if there is none.

    ``malloc``: the located data of malloc. ``chunks``, ``mapped`` and ``bins`` are read when they are first asked
    for."""

    name = NAME
    title = "glibc malloc"
    lines = (
        LedgerLine(USED, NAME, "blocks in use", None),
        LedgerLine(MAPPED, NAME, "large blocks (mmap)", State.USED),
        LedgerLine(FREE, NAME, "freed, kept by glibc", None),
        LedgerLine(CACHED_MAPPED, FREE, "cached large blocks", State.FREE, detail=True),
        LedgerLine(TOP, NAME, "top chunks", None),
        LedgerLine(OVERHEAD, NAME, "arena metadata", None),
    )
    why_holes_stay = (
        "free() returns memory only from top chunks. malloc_trim(0) returns the whole pages of all holes, even of "
        "small ones; the first page counts them all."
    )
    groups = ("group of pages is", "groups of pages are")

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.malloc = Glibc(self.target, around.facts)
        self._bins: BinReader | None = None

    # The walk.

    @cached_property
    def chunks(self) -> _native.Chunks:
        """Every chunk of the arenas.

        Reading it adds a remark if there are blocks of other allocators, which are not included."""
        return self._walk(False)

    def require_walk(self) -> _native.Chunks:
        """Return ``chunks``, for callers that need the results of the walk in ``malloc``. Raises Unsupported if the
        chunks cannot be walked."""
        return self.chunks

    def _walk(self, collects: bool) -> _native.Chunks:
        chunks = self.malloc.walk(self._around.labelled("walking glibc's heaps"), collects)
        self._around.note_others(self.malloc.idle)
        return chunks

    @cached_property
    def mapped(self) -> list[MappedChunk]:
        """The chunks of malloc that have a mapping of their own, by ascending address."""
        return self.malloc.find_mapped(subtract(self._around.anonymous(False), self._around.taken()))

    @property
    def bins(self) -> BinReader:
        """The bins of all arenas. Their lists have been followed and checked.

        Read this before ``chunks``: the walk then also collects the links that the bins need."""
        if self._bins is None:
            chunks = self._walk(collects=True)
            self._bins = BinReader(self.target.space, self.malloc, chunks, self._around.labelled("following the bins"))
        return self._bins

    def lists_of(self, chunks: Sequence[ChunkRow]) -> list[str | None]:
        """Return, for each chunk, the name of the free list that it is on; None for a chunk on no list."""
        return list_names(chunks, lambda: self.bins)

    def mapped_at(self, address: int) -> MappedChunk | None:
        """Return the mmapped chunk that holds ``address``; None if there is none."""
        return self.malloc.mapped_at(address) if self.mapped else None

    # Memory and its owners.

    def ranges(self) -> Ranges:
        """Return the arenas with their reserved address space.

        Mmapped chunks are not included, because they are searched after everything else."""
        return self.malloc.owned_ranges()

    def single_blocks(self) -> Ranges:
        """Return the ranges of the mmapped chunks."""
        return [(chunk.base, chunk.end) for chunk in self.mapped]

    def of_others(self) -> Ranges:
        """Return the memory between parts of the main arena that other code, and not malloc, got from ``sbrk``."""
        chunks = self.chunks
        if not any(region.states[FOREIGN].bytes for region in self.malloc.regions()):
            return []
        rows = _native.list_chunks(chunks, ChunkRequest(1 << FOREIGN), "address").rows
        return sorted((row.address, row.address + row.size) for row in rows)

    def books(self) -> Ranges:
        """Return the range of ``main_arena``. Its bins, top and last remainder point to chunks, but do not count as
        references to blocks."""
        main = self.malloc.main
        return [(main.address, main.address + main.layout["size"])]

    def pieces(self) -> Iterable[Piece]:
        """Yield the arenas' runs of chunks, the arenas' memory between these runs, and the mmapped chunks."""
        self.require_walk()
        stretches = sorted((stretch.start, stretch.end) for stretch in self.malloc.stretches)
        yield from (Piece(start, end, None) for start, end in stretches)
        for start, end in subtract(sorted(self.ranges()), stretches):
            found = self.malloc.heap_at(start)
            yield Piece(start, end, line_below(OVERHEAD, found.arena if found else 0))
        owners = {True: CACHED_MAPPED, False: MAPPED}
        yield from (Piece(chunk.base, chunk.end, owners[chunk.cached]) for chunk in self.mapped)

    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[LineId], int]) -> int:
        """Add the chunks of the ``Stretch`` at ``start`` to ``sweep``, which sums bytes by ledger line. Return the end
        of the stretch.
        """
        arena = self._arenas_by_start[start]
        owners: dict[str, int] = {part: number(line_below(line, arena)) for part, line in OF_ARENAS.items()}
        owners.update((part, number(line)) for part, line in OF_OTHERS.items())
        return sweep.add_blocks(self.target.space, self.chunks, start, owners)

    @cached_property
    def _arenas_by_start(self) -> dict[int, int]:
        """The index of the arena of each ``Stretch``, by the stretch's start address."""
        return {stretch.start: stretch.arena for stretch in self.malloc.stretches}

    def leaves(self, ranges: Ranges) -> Ranges:
        """Return ``ranges`` without the arenas and without memory that looks like an mmapped chunk."""
        rest = subtract(ranges, self.malloc.owned_ranges())
        return subtract(rest, self.malloc.likely_mapped(rest))

    def all_lines(self) -> Iterator[LedgerLine]:
        """Yield the ledger lines. A line that sums over all arenas is followed by a line for each arena."""
        for line in self.lines:
            yield line
            for index in range(len(self.malloc.arenas)) if line.id in PARTS_OF_ARENAS else ():
                title = f"arena {index}" if index else "main arena"
                yield LedgerLine(line_below(line.id, index), line.id, title, PARTS_OF_ARENAS[line.id], detail=True)

    def drawn(self) -> Iterable[DrawnArea]:
        """Yield the areas of the map: the heaps of the arenas and the mmapped chunks."""
        self.require_walk()
        for part in self.malloc.heaps:
            yield DrawnArea(
                part.start, part.end, f"arena {part.arena}" if part.arena else "main arena", "glibc", part.arena
            )
        for start, end in joined(sorted((chunk.base, chunk.end) for chunk in self.mapped)):
            yield DrawnArea(start, end, "chunks with their own mapping", MMAPPED)

    # Blocks.

    def find(self, address: int) -> Block | None:
        """Return the chunk that holds ``address``, in an arena or with a mapping of its own; None if there is none.

        A chunk includes the first eight bytes of the next chunk's header, but nothing beyond its heap."""
        found = self.chunks.find_many([address])[0] if self.own_part(address) is None else None
        if found is not None:
            (held,) = self.lists_of([found])
            arena, end = self.chunks.arena_of(found.address), found.address + found.size
            return Block(found.address + HEADER, found.size, found.state, self.name, arena, held, end)
        mapped = self.mapped_at(address)
        if mapped is None:
            return None
        size = mapped.end - mapped.chunk
        state = "tcache" if mapped.cached else "used"
        block = Block(mapped.chunk, size, state, self.name, None, None, mapped.end)
        (held,) = self.lists_of([block])
        return replace(block, address=mapped.chunk + HEADER, list=held or MMAPPED)

    def own_part(self, address: int) -> str | None:
        """Return the name of the part of a thread's heap that holds ``address``: the header before the chunks, or the
        reserve after them. None for any other address."""
        found = self.malloc.heap_at(address)
        if found is None or found.chunks <= address < found.end:
            return None
        return f"header of arena {found.arena}'s heap" if address < found.chunks else f"reserve of arena {found.arena}"

    def structures(self) -> dict[int, str]:
        """Return the chunks that hold the thread caches, as {address: purpose}."""
        return {tcache.address: f"thread cache of thread {tcache.tid}" for tcache in self.malloc.tcaches}

    def requests_for(self, block: Block) -> tuple[int, int]:
        """Return the least and the most bytes for which malloc hands out a chunk of the size of ``block``."""
        machine, par = self.target.machine, self.malloc.par
        huge = par.hp_pagesize if par is not None else None
        page = huge if huge and block.size % huge == 0 else machine.page
        return of_chunk(machine, block.size, block.list == MMAPPED, page)

    @cached_property
    def used_chunks(self) -> list[tuple[int, int]]:
        """The sizes of the arenas' chunks in use, each as (bytes with the header, number of chunks)."""
        return [(row.size, row.states[IN_USE]) for row in _native.count_sizes(self.chunks)]

    def used_by_arena(self, least: int) -> dict[int, list[int]]:
        """Return the sizes, with headers, of the arenas' chunks in use of at least ``least`` bytes, by the index of the
        arena. An arena without such chunks is left out.
        """
        found: defaultdict[int, list[int]] = defaultdict(list)
        for row in _native.list_chunks(self.chunks, ChunkRequest(1 << IN_USE, least), "size").rows:
            found[row.arena].append(row.size)
        return dict(found)

    def used_sizes(self) -> list[tuple[int, int]]:
        """Return (bytes with the header, number of chunks in use) for each size of chunk, then (bytes, 1) for each
        mmapped chunk.
        """
        return self.used_chunks + [(chunk.end - chunk.chunk, 1) for chunk in self.mapped if not chunk.cached]

    def largest_used(self, least: int, most: int) -> list[tuple[int, int]]:
        """Return (the program's pointer, size in bytes) of the largest chunks in use, including mmapped chunks.

        ``least``: leave out chunks of fewer bytes. ``most``: the largest number of chunks to return.
        """
        rows = _native.list_chunks(self.chunks, ChunkRequest(1 << IN_USE, least), "size", most).rows
        found = [(row.address + HEADER, row.size) for row in rows]
        found += [(chunk.chunk + HEADER, chunk.end - chunk.chunk) for chunk in self.mapped if not chunk.cached]
        return sorted((row for row in found if row[1] >= least), key=lambda row: -row[1])[:most]

    def give(self, blocks: WalkedBlocks) -> None:
        """Add the chunks of the arenas and the mmapped chunks in use to ``blocks``."""
        blocks.general["chunks"] = self.chunks
        blocks.single.append(_native.Mapped([(chunk.chunk, chunk.end) for chunk in self.mapped if not chunk.cached]))

    # Holes and pins.

    def holes(self, minimum: int) -> Iterable[HoleRow]:
        """Return the runs of adjacent free chunks of at least ``minimum`` bytes. The chunks may be in bins, fast bins
        or thread caches."""
        return self.chunks.holes(max(minimum, 1))

    def pins(self, kept: Ranges, minimum: int, most: int) -> PinSums:
        """Return at most ``most`` groups of chunks that share pages with free memory and fill at most half of these
        pages.

        Each group pins at least ``minimum`` bytes in addition to its own bytes.
        """
        tops = given_tops(self.target, self.malloc)
        return _native.pins(self.target.machine, self.chunks, self.target.pages, kept, tops, minimum, most)

    def members(self, row: PinRow) -> list[Member]:
        """Return the chunks of the group ``row``: those in use, and those in thread caches."""
        return _native.held_chunks(self.chunks, row.start, row.end, row.blocks)

    def predict(self, pad: int = 0) -> Trim:
        """Predict the memory that a call of ``malloc_trim(pad)`` would return to the kernel."""
        if self.target.locked:
            self._around.note("locked")
        return predict(self.target, self.malloc, self.chunks, pad)

    @cached_property
    def trim(self) -> Trim | None:
        """The memory that malloc_trim(0) would return to the kernel; None if residency is unknown."""
        found = self.predict()
        return None if found.predicted is None else found

    def returnable(self) -> int | None:
        """Return how many bytes malloc_trim(0) would return to the kernel; None if unknown."""
        return None if self.trim is None else self.trim.predicted

    def reclaimable(self, line: LineId, whole: int) -> int:
        """Return how many bytes of an arena's free memory, or of its top chunks, malloc_trim(0) would return."""
        return self._returned.get(line, 0)

    @cached_property
    def _returned(self) -> dict[LineId, int]:
        rows = self.trim.rows if self.trim is not None else []
        tops = {line_below(TOP, row.index): row.top_predicted or 0 for row in rows}
        return {line_below(FREE, row.index): (row.predicted or 0) - (row.top_predicted or 0) for row in rows} | tops

    def kept(self, free: int, whole: int) -> list[KeepReason]:
        """Return the free bytes that malloc_trim(0) would leave, by reason.

        The possible reasons: the bytes share pages with chunks in use; they are in thread caches; they are in pages
        that the kernel does not take back; or they are in top chunks that malloc_trim(0) leaves."""
        if self.trim is None:
            return []
        tops = sum(arena.top_kept or 0 for arena in self.trim.rows)
        rest = free - (self.trim.predicted or 0) - tops
        cached = min(rest, sum(sums["tcache"][1] for sums in self.malloc.sums()))
        # malloc_trim(0) releases the whole pages inside free chunks, unless they are locked.
        released = sum((arena.predicted or 0) - (arena.top_predicted or 0) for arena in self.trim.rows)
        stays = min(rest - cached, whole - released) if self.target.kept else 0
        huge = min(stays, self._in_huge_pages())
        sizes = (rest - cached - stays, cached, stays - huge, huge, tops)
        return [KeepReason(f"{self.name}.{reason}", size, why) for (reason, why), size in zip(WHY_KEPT, sizes)]

    def _in_huge_pages(self) -> int:
        """Return the resident bytes of the arenas that lie in hugetlbfs pages."""
        huge = [(mapping.start, mapping.end) for mapping in self.target.mappings if mapping.path == HUGE_PAGES]
        arenas = joined(sorted((stretch.start, stretch.end) for stretch in self.malloc.stretches))
        inside = subtract(arenas, subtract(arenas, huge)) if huge else []
        return 0 if self.target.pages is None else sum(self.target.pages.count(*pair).resident for pair in inside)

    # State, damage and checks.

    @property
    def idle(self) -> bool:
        """Whether no arena has memory and there is no mmapped chunk."""
        return self.malloc.idle

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about thread caches and mmapped chunks that were not found."""
        return self.malloc.warnings

    @property
    def damage(self) -> list[Damage]:
        """The inconsistencies in the walked chunks and in the bins. An inconsistency is marked as transient if a thread
        inside malloc may have caused it."""
        found = self.malloc.damage + (self._bins.damage if self._bins is not None else [])
        return self._explained(found) if found else []

    def _explained(self, found: list[Damage]) -> list[Damage]:
        caught = self._changes.explain(found, self.chunks.arena_of)
        if any(caught):
            self._around.note("malloc-moving", threads=[thread.tid for thread in self._changes.inside])
        return [replace(damage, transient=True) if by_thread else damage for damage, by_thread in zip(found, caught)]

    @cached_property
    def _changes(self) -> Changes:
        return Changes(self.target, self.malloc)

    def check(self) -> WalkedCounts:
        """Check every chunk, every link of every bin in both directions, and the number and bytes of mmapped chunks in
        ``mp_``."""
        _followed, _found = self.bins, self.mapped
        self.malloc.check_mapped()
        totals = self.chunks.totals()
        chunks = sum(tally.count for region in totals for tally in region.states)
        unexplained = sum(region.states[UNREAD].bytes for region in totals)
        return WalkedCounts({"regions": len(totals), "chunks": chunks}, unexplained)
