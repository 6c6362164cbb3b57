"""List how many blocks each size class of pymalloc has, counted as ``sys._debugmallocstats()`` does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from gdbheap import _native
from gdbheap.allocators.mimalloc.allocator import MimallocAllocator
from gdbheap.allocators.mimalloc.segments import Mimalloc
from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.allocators.pymalloc.pools import Pymalloc
from gdbheap.answers.accounting.describing import BlockDescription, describe_blocks
from gdbheap.contents.python.text.repr import BRIEF
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap

PERCENTS = (1, 10, 25, 50, 75, 100)
MAX_ARENAS_LISTED = 5
MAX_PINS_LISTED = 5
MAX_BLOCKS_DESCRIBED = 20_000


@dataclass(frozen=True)
class PoolClass:
    """One size class of pymalloc.

    ``size``: bytes of a block. ``arenas``: the number of arenas with blocks in use of this class. ``alone``: how many
    of these arenas have no blocks in use of other classes. ``alone_blocks``: the number of blocks in use in such
    arenas. ``told``: the number of objects with a known size. ``asked``: the bytes that these objects asked for.
    ``wasted``: the bytes of their blocks less ``asked``.
    """

    size: int
    pools: int
    used_count: int
    free_count: int
    arenas: int = 0
    alone: int = 0
    alone_blocks: int = 0
    told: int | None = None
    asked: int | None = None
    wasted: int | None = None


@dataclass(frozen=True)
class Fill:
    """The arenas that are filled up to ``percent`` per cent, but more than the previous row's percentage.

    ``arenas``: their number. ``used``: the bytes in use in them."""

    percent: int
    arenas: int
    used: int


@dataclass(frozen=True)
class ClassShare:
    """The pools and the blocks in use of one size class in one arena."""

    size: int
    pools: int
    used_count: int


@dataclass(frozen=True)
class PinningBlocks:
    """The blocks in use in an arena that have the same description. ``address``: the address of the first block."""

    what: str
    blocks: int
    bytes: int
    address: int
    text: str | None


@dataclass(frozen=True)
class ArenaUse:
    """An arena with blocks in use, by size class.

    ``pins``: the blocks that hold most of the arena's bytes, among its first 20,000 blocks in use; empty without
    details.
    """

    index: int
    address: int
    blocks: int
    bytes: int
    classes: list[ClassShare]
    pins: list[PinningBlocks]


@dataclass(frozen=True)
class InterpreterPools:
    """The totals of an interpreter that has its own pools."""

    usedpools: int
    arenas: int
    blocks: int
    bytes: int


@dataclass(frozen=True)
class PageHeap:
    """The sums over those mimalloc heaps of all threads that serve one purpose, such as objects that the collector
    tracks.

    ``blocks`` and ``bytes``: the blocks in use. ``abandoned``: the number of pages that no thread owns, usually because
    their thread has ended."""

    name: str
    page_count: int
    blocks: int
    bytes: int
    abandoned: int


@dataclass(frozen=True)
class MimallocUse:
    """CPython's mimalloc, with its heaps by purpose; only free-threaded builds distinguish purposes."""

    segments: int
    reserved: int
    free_spans: int
    heaps: list[PageHeap]


@dataclass(frozen=True)
class PoolTotal:
    """The sums over all size classes: how many pools there are, and how many used and free blocks, with their bytes."""

    pools: int = 0
    used_count: int = 0
    free_count: int = 0
    used: int = 0
    free: int = 0


@dataclass(frozen=True)
class Pools:
    """The answer of ``heap pools``.

    If mimalloc replaces pymalloc, the rows are mimalloc's block sizes, and ``pools`` counts its pages."""

    arena_size: int | None
    pool_size: int | None
    arenas: int
    free_pools: int
    rows: list[PoolClass]
    fill: list[Fill] = field(default_factory=list)
    emptiest: list[ArenaUse] = field(default_factory=list)
    interpreters: list[InterpreterPools] = field(default_factory=list)
    mimalloc: MimallocUse | None = None
    total: PoolTotal = PoolTotal()


def pools(heap: Heap, detail: bool = False) -> Pools:
    """Return every size class that has pools, by size.

    ``detail``: also return how many bytes objects asked for, and which blocks pin arenas. Raises NotAPython or
    Unsupported.
    """
    mimalloc = heap.find_allocator(MimallocAllocator)
    if mimalloc is not None:
        return _pages(heap, mimalloc.mimalloc, detail)
    python = heap.allocator(PymallocAllocator).pymalloc
    if not python.in_use:
        return Pools(None, None, 0, 0, [])
    occupancy = _native.occupancy(python.pools, PERCENTS, MAX_ARENAS_LISTED)
    spreads = {spread.block_size: spread for spread in occupancy.spread}
    asked = _asked(heap) if detail else {}
    rows = [_pool_class(row, spreads[row.block_size], asked) for row in python.pools.classes()]
    uses = [_use(row) for row in occupancy.emptiest]
    if detail:
        uses = _with_pins(heap, uses)
    fills = [Fill(row.percent, row.arenas, row.used_bytes) for row in occupancy.fill]
    sizes, free = (python.arena_size, python.pool_size), python.free_pools
    return Pools(*sizes, len(python.arenas), free, rows, fills, uses, _interpreters(python), None, _total(rows))


def _pages(heap: Heap, mimalloc: Mimalloc, detail: bool) -> Pools:
    asked = _asked(heap) if detail else {}
    rows = [_pool_class(row, None, asked) for row in mimalloc.blocks.classes()]
    heaps = [
        PageHeap(mimalloc.purpose(row.tag), row.pages, row.used, row.bytes, row.abandoned)
        for row in mimalloc.blocks.heaps()
    ]
    reserved = sum(end - start for start, end in mimalloc.reserved())
    use = MimallocUse(len(mimalloc.segments), reserved, mimalloc.blocks.free_spans, heaps)
    return Pools(None, None, 0, 0, rows, mimalloc=use, total=_total(rows))


def _total(rows: Iterable[PoolClass]) -> PoolTotal:
    sums = [
        (row.pools, row.used_count, row.free_count, row.size * row.used_count, row.size * row.free_count)
        for row in rows
    ]
    return PoolTotal(*map(sum, zip(*sums)))


def _interpreters(python: Pymalloc) -> list[InterpreterPools]:
    used = {row.number: (row.used, row.bytes) for row in python.pools.used_of_arenas()}
    found = []
    for state in python.states:
        own = [used[arena.number] for arena in state.arenas if arena.number in used]
        blocks, size = (sum(column) for column in zip(*own)) if own else (0, 0)
        found.append(InterpreterPools(state.heads.address, len(state.arenas), blocks, size))
    return found


def _pool_class(
    row: _native.SizeClass, spread: _native.Spread | None, asked: dict[int, tuple[int, int, int]]
) -> PoolClass:
    """Return the row of a size class.

    ``spread``: how many arenas have blocks of the class; None for an allocator without arenas. ``asked``: three sums
    for each block size, over the objects of known size. They are the number of objects, the bytes that the objects
    asked for, and the remaining bytes of their blocks. ``asked`` is empty if these were not counted."""
    where = (0, 0, 0) if spread is None else (spread.arenas, spread.alone, spread.blocks_alone)
    wasted = asked.get(row.block_size, _unknown(asked))
    return PoolClass(row.block_size, row.groups, row.used, row.free, *where, *wasted)


def _unknown(asked: dict[int, tuple[int, int, int]]) -> Sequence[int | None]:
    return (0, 0, 0) if asked else (None, None, None)


def _asked(heap: Heap) -> dict[int, tuple[int, int, int]]:
    """Return, by size class, the number of objects with a known size, and two sums.

    The sums are the bytes that these objects asked for, and the remaining bytes of their blocks.
    """
    objects = heap.python.objects_or_none
    if objects is None:
        return {}
    rows = objects.asked_sizes(set(heap.python.census.contested), heap.python.classifying)
    return {row.block_size: (row.objects, row.bytes, row.objects * row.block_size - row.bytes) for row in rows}


def _use(row: _native.OccupiedArena) -> ArenaUse:
    classes = [ClassShare(share.block_size, share.pools, share.used) for share in row.shares]
    return ArenaUse(row.number, row.address, sum(share.used_count for share in classes), row.used_bytes, classes, [])


def _with_pins(heap: Heap, uses: list[ArenaUse]) -> list[ArenaUse]:
    """Return the arenas with the blocks that pin each of them. All blocks are described in one pass."""
    space, native = heap.target.space, heap.allocator(PymallocAllocator).pymalloc.pools
    members = [_native.used_blocks(space, native, use.address, MAX_BLOCKS_DESCRIBED) for use in uses]
    blocks = [[(member.address, member.size) for member in found] for found in members]
    words = describe_blocks(heap, [block for found in blocks for block in found])
    return [replace(use, pins=_pins(heap, found, words)) for use, found in zip(uses, blocks)]


def _pins(heap: Heap, blocks: list[tuple[int, int]], words: dict[int, BlockDescription]) -> list[PinningBlocks]:
    """Return the blocks that hold the most bytes of an arena, by description.

    Blocks whose descriptions differ only in the address of their owner are merged.
    """
    alike: dict[str, list[tuple[int, int]]] = {}
    for block in blocks:
        alike.setdefault(words[block[0]].kind.text(), []).append(block)
    sizes = {what: sum(size for _, size in found) for what, found in alike.items()}
    largest = sorted(alike, key=lambda what: (-sizes[what], what))[:MAX_PINS_LISTED]
    return [PinningBlocks(what, len(alike[what]), sizes[what], *_first(heap, alike[what][0])) for what in largest]


def _first(heap: Heap, block: tuple[int, int]) -> tuple[int, str | None]:
    objects = heap.python.objects_or_none
    found = objects.objects_in([block])[0] if objects is not None else None
    return block[0], objects.text(found, BRIEF) if objects is not None and found is not None and found.alive else None
