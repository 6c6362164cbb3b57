"""Predict whether malloc can serve a request from free memory and, if not, what it asks the kernel for.

malloc searches in this order: the thread's cache, the fast bin, the other bins, the top chunk of the arena. A thread's
cache and a fast bin must have a chunk of exactly the size. In the other bins, malloc takes the smallest chunk that
suffices. If the search fails, malloc asks the kernel. For a chunk of at least ``mmap_threshold`` bytes it asks for a
separate mapping, otherwise for a larger heap.

malloc takes one free chunk and never joins several. Before a large request, malloc merges the chunks in fast bins with
their free neighbours."""

from __future__ import annotations

from gdbheap import _native
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.glibc.arenas import HEADER, SMALLEST_CHUNK, Glibc
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.heap import Heap
from gdbheap.machines.machine import LARGEST_SIZE

MIN_LARGE = 0x400
MIN_HEAP = 32 << 10
MIN_EXTENT = 1 << 20
MAX_NEAREST = 5


@dataclass(frozen=True)
class FittingChunk:
    """A free chunk. ``address``: the pointer that malloc would return. ``size``: bytes, header included."""

    address: int
    size: int


@dataclass(frozen=True)
class ShortPiece:
    """A free chunk that is too small by ``short_by`` bytes."""

    address: int
    size: int
    arena: int
    short_by: int


@dataclass(frozen=True)
class CachedPiece:
    """A chunk in a thread's cache that has exactly the requested size."""

    tid: int
    address: int


@dataclass(frozen=True)
class ArenaFit:
    """How malloc would serve the request in one arena. malloc takes ``best_piece``. If there is no ``best_piece``,
    malloc takes memory of the top chunk (``uses_top``). If the top chunk is too small, malloc asks the kernel for a
    mapping (``mmapped``) or for ``grows_by`` more bytes of heap.
    """

    index: int
    best_piece: FittingChunk | None
    uses_top: bool
    short_by: int | None
    mmapped: bool
    grows_by: int | None


@dataclass(frozen=True)
class Fit:
    """Whether malloc can serve a request without the kernel (``fits``).

    ``mmapped``: no free memory fits, and every arena would serve the request with a separate mapping.
    """

    request: int
    chunk: int
    mmapped: bool
    fits: bool
    mmap_threshold: int
    by_arena: list[ArenaFit]
    cached_pieces: list[CachedPiece]
    nearest: list[ShortPiece]


@dataclass(frozen=True)
class _Pieces:
    """The chunks of an arena that decide how a request is served: the smallest sufficient chunk, the largest
    insufficient ones, and the top chunk.
    """

    best: FittingChunk | None
    short: list[FittingChunk]
    top: int

    def top_fits(self, need: int) -> bool:
        """Return whether the top chunk suffices for ``need`` bytes. malloc must leave at least a chunk of the minimum
        size there.
        """
        return self.top >= need + SMALLEST_CHUNK


class _Search:
    """Finds the chunks of every arena for a request that needs a chunk of ``need`` bytes.

    All chunks are read at most twice: once unchanged, and once with the chunks of fast bins merged.
    """

    def __init__(self, glibc: Glibc, need: int) -> None:
        self.glibc = glibc
        self.need = need
        self._found: dict[bool, dict[int, _Pieces]] = {}

    def pieces(self, index: int, with_fast: bool) -> _Pieces:
        """Return the chunks of an arena for the request. ``with_fast``: first merge the chunks of fast bins with their
        neighbours.
        """
        if with_fast not in self._found:
            rows = _native.find_fits(self.glibc.walk(), self.need, with_fast, MAX_NEAREST)
            self._found[with_fast] = {
                row.arena: _Pieces(
                    _piece(row.best) if row.best else None, [_piece(piece) for piece in row.short], row.top
                )
                for row in rows
            }
        return self._found[with_fast].get(index, _Pieces(None, [], 0))

    def fast(self, index: int) -> _Pieces | None:
        """Return the first chunk of the fast bin for chunks of ``need`` bytes; None if the bin is empty."""
        fast, place = self.glibc.arenas[index].fast, self.need // 16 - 2
        head = fast[place] if place < len(fast) else 0
        found = self.glibc.walk().find_many([head + HEADER])[0] if head else None
        return _Pieces(_piece(found), [], 0) if found and _is(found, head, self.need, "fast") else None


def _piece(row: _native.FreePiece | _native.Block) -> FittingChunk:
    return FittingChunk(row.address + HEADER, row.size)


def _is(block: _native.Block, address: int, size: int, state: str) -> bool:
    return (block.address, block.size, block.state) == (address, size, state)


def fit(heap: Heap, request: int) -> Fit:
    """Return whether malloc can serve a request of ``request`` bytes.

    Raises UsageError for a size that malloc refuses, and Unsupported if the target does not have glibc's malloc.
    """
    if request > LARGEST_SIZE:
        raise UsageError(f"malloc refuses a request of more than {LARGEST_SIZE} bytes")
    need = chunk_of(request)
    glibc = heap.allocator(GlibcAllocator).malloc
    glibc.walk()
    search = _Search(glibc, need)
    found = [_in_arena(search, index) for index in range(len(glibc.arenas))]
    cached = _cached(glibc, need)
    short = [
        ShortPiece(piece.address, piece.size, fitted.index, need - piece.size)
        for fitted, pieces in found
        if fitted.best_piece is None
        for piece in pieces.short
    ]
    arenas = [fitted for fitted, _ in found]
    fits = bool(cached) or any(arena.best_piece or arena.uses_top for arena in arenas)
    mapped = not fits and all(arena.mmapped for arena in arenas)
    nearest = sorted(short, key=lambda piece: (piece.short_by, piece.address))[:MAX_NEAREST]
    return Fit(request, need, mapped, fits, glibc.par.mmap_threshold, arenas, cached, nearest)


def largest_free(heap: Heap) -> dict[int, int]:
    """Return the size of the largest free chunk of each arena, without the top chunk, after fast bins are merged.

    Arenas without free chunks are left out. Raises Unsupported if the target does not have glibc's malloc.
    """
    glibc = heap.allocator(GlibcAllocator).malloc
    rows = _native.find_fits(glibc.walk(), LARGEST_SIZE, True, 1)
    return {row.arena: row.short[0].size for row in rows if row.short}


def chunk_of(request: int) -> int:
    """Return the size of the chunk for a request of ``request`` bytes (glibc's request2size).

    It is the request and eight bytes, rounded up to a multiple of 16, and at least 32."""
    return max(SMALLEST_CHUNK, _up(request + 8, 16))


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _in_arena(search: _Search, index: int) -> tuple[ArenaFit, _Pieces]:
    need = search.need
    pieces = search.fast(index) or search.pieces(index, need >= MIN_LARGE)
    if pieces.best is None and not pieces.top_fits(need):
        pieces = search.pieces(index, True)
    top = pieces.best is None and pieces.top_fits(need)
    short_by = need - pieces.short[0].size if pieces.best is None and pieces.short else None
    if pieces.best is not None or top:
        return ArenaFit(index, pieces.best, top, short_by, False, None), pieces
    grows_by = _grows_by(search.glibc, index, need, pieces.top)
    return ArenaFit(index, None, False, short_by, grows_by is None, grows_by), pieces


def _cached(glibc: Glibc, need: int) -> list[CachedPiece]:
    """Return the first chunk of exactly ``need`` bytes in each thread's cache. The thread's next request of this size
    takes it.
    """
    entries = [(tcache.tid, entry) for tcache in glibc.tcaches for _index, entry, _count in tcache.lists]
    found = glibc.walk().find_many([entry for _tid, entry in entries])
    return [
        CachedPiece(tid, entry)
        for (tid, entry), block in zip(entries, found)
        if block and _is(block, entry - HEADER, need, "tcache")
    ]


# The sizes for which malloc asks the kernel (malloc/malloc.c, sysmalloc; malloc/arena.c, grow_heap and new_heap).


def _grows_by(glibc: Glibc, index: int, need: int, top: int) -> int | None:
    """Return by how many bytes the arena would grow to serve the request; None if the request would get its own
    mapping.
    """
    par = glibc.par
    if need >= par.mmap_threshold and par.n_mmaps < par.n_mmaps_max:
        return None
    return _thread_arena_grows_by(glibc, index, need, top) if index else _main_arena_grows_by(glibc, need, top)


def _main_arena_grows_by(glibc: Glibc, need: int, top: int) -> int:
    par, page = glibc.par, glibc.target.machine.page
    size = need + par.top_pad + SMALLEST_CHUNK
    if glibc.main.noncontiguous:
        # glibc 2.35 and later use the page size as the minimum by mistake. A later version may have fixed this; gdbheap
        # does not distinguish it.
        return max(_up(size, page), page if par.layout["hp_pagesize"] is not None else MIN_EXTENT)
    size -= top
    if not par.thp_pagesize:
        return _up(size, page)
    end = max((heap.end for heap in glibc.heaps if heap.arena == 0), default=0)
    return _up(end + size, par.thp_pagesize) - end


def _thread_arena_grows_by(glibc: Glibc, index: int, need: int, top: int) -> int | None:
    state, page = glibc.arenas[index], glibc.par.hp_pagesize or glibc.target.machine.page
    heap = glibc.heap_at(state.top)
    if heap is not None:
        more = _up(need + SMALLEST_CHUNK - top, page)
        if heap.end + more <= heap.reserve:
            return more
    span = glibc.heap_span
    size = need + SMALLEST_CHUNK + state.address % span
    if size > span:
        return None
    return _up(min(max(size + glibc.par.top_pad, MIN_HEAP), span), page)
