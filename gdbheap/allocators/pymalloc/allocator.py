"""Implement ``Allocator`` for CPython's pymalloc, with its arenas and pools."""

from __future__ import annotations

from collections.abc import Iterable

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Block,
    DrawnArea,
    HoleRow,
    KeepReason,
    LedgerLine,
    Member,
    Piece,
    PinRow,
    State,
    StoreAllocator,
    Surroundings,
    WalkedBlocks,
    WalkedCounts,
)
from gdbheap.allocators.line_ids import LineId, lines_below
from gdbheap.allocators.pymalloc.pools import Pymalloc
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.target import Damage

NAME = LineId("pymalloc")
USED, FREE, OVERHEAD = lines_below(NAME, "used", "free", "overhead")
BLOCKS, POOLS = lines_below(FREE, "blocks", "pools")
MAX_DAMAGE = 1000


class PymallocAllocator(StoreAllocator):
    """pymalloc in one target; ``pymalloc``: its located structures. Raises NotAPython or Unsupported."""

    name = NAME
    title = "Python's pymalloc"
    lines = (
        LedgerLine(USED, NAME, "blocks in use", State.USED),
        LedgerLine(FREE, NAME, "freed, kept by pymalloc", None),
        LedgerLine(BLOCKS, FREE, "free blocks", State.FREE, detail=True),
        LedgerLine(POOLS, FREE, "free pools", State.FREE, detail=True),
        LedgerLine(OVERHEAD, NAME, "pool headers and padding", State.OVERHEAD),
    )
    parts = {
        "used": USED,
        "free": BLOCKS,
        "free run": POOLS,
        "header": OVERHEAD,
        "padding": OVERHEAD,
    }
    why_holes_stay = "pymalloc returns an arena only when none of its blocks is in use."
    groups = ("arena is", "arenas are")

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.pymalloc = Pymalloc(self.target, around.facts, lambda ranges: around.outside(ranges, PymallocAllocator))

    @property
    def interpreter(self) -> LoadedObject | None:
        """The loaded object whose static data contains the lists of pools."""
        return self.pymalloc.module

    @property
    def store(self) -> _native.Pools:
        """The pools, as the native code has read them."""
        return self.pymalloc.pools

    @property
    def damage(self) -> list[Damage]:
        """The inconsistencies that were found in arenas and pools."""
        return self.pymalloc.damage

    def ranges(self) -> Ranges:
        """Return the address ranges of the arenas."""
        return self.pymalloc.ranges()

    def pieces(self) -> Iterable[Piece]:
        """Return each arena as a piece of address space."""
        return (Piece(start, end, None) for start, end in self.ranges())

    def drawn(self) -> Iterable[DrawnArea]:
        """Return the areas that ``heap map`` draws: the arenas, with adjacent arenas joined."""
        return (DrawnArea(start, end, "pymalloc's arenas", self.name) for start, end in joined(sorted(self.ranges())))

    def find(self, address: int) -> Block | None:
        """Return the block of a pool that holds ``address``, with the number of its arena; None if there is none."""
        row = self.store.find(self.target.space, address)
        if row is None:
            return None
        return Block(row.address, row.size, row.state, self.name, self._arena_at(address), None, row.address + row.size)

    def _arena_at(self, address: int) -> int | None:
        size = self.pymalloc.arena_size or 0
        return next((arena.number for arena in self.pymalloc.arenas if 0 <= address - arena.address < size), None)

    def own_part(self, address: int) -> str | None:
        """Return the use of an address in an arena but in no block: a pool's header, or memory outside of pools.

        None for other addresses."""
        if not any(start <= address < end for start, end in self.ranges()):
            return None
        return f"overhead of pymalloc arena {self._arena_at(address)}"

    def structures(self) -> dict[int, str]:
        """Return the tables of arenas, as {address: purpose}."""
        return {state.table: "pymalloc's table of arenas" for state in self.pymalloc.states}

    def give(self, blocks: WalkedBlocks) -> None:
        """Add the pools to ``blocks``, if they hold blocks."""
        if self.pymalloc.in_use:
            blocks.own["pools"] = self.store

    def holes(self, minimum: int) -> Iterable[HoleRow]:
        """Return the runs of adjacent free pools, and of adjacent free blocks in one pool, that have at least
        ``minimum`` bytes.
        """
        fits = minimum <= (self.pymalloc.arena_size or 0)
        return self.store.holes(self.target.space, max(minimum, 1)) if fits else []

    def members(self, row: PinRow) -> list[Member]:
        """Return the blocks in use in the arena that ``row`` describes."""
        return _native.used_blocks(self.target.space, self.store, row.start, row.blocks)

    def kept(self, free: int, whole: int) -> list[KeepReason]:
        """Return the one reason why free bytes stay in the process: an arena is released only when it is empty."""
        return [KeepReason(FREE, free, "in pymalloc's arenas, which are returned only when empty")]

    def check(self) -> WalkedCounts:
        """Check the free blocks of every pool. Return how many pools there are.

        The headers of pools were checked when the pools were read.
        """
        known = {damage.address for damage in self.damage}
        rows = self.store.verify(self.target.space, MAX_DAMAGE)
        self.damage.extend(Damage.of(row) for row in rows if row.address not in known)
        return WalkedCounts({"pools": self.store.pool_count})
