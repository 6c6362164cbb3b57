"""Read pymalloc in a running process: its table of arenas, and the headers of its pools.

The table is read twice. Afterwards the pointer to it is read again, because the table moves when it grows. A thread
that holds the GIL changes the four words of a pool's header. So in a busy process a few headers are always changing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from gdbheap import _native
from gdbheap.allocators.pymalloc.pools import ArenaRow, Pymalloc
from gdbheap.allocators.pymalloc.usedpools import ARENA_OBJECT, MAX_ARENAS, ArenaObject, PoolState, is_slot
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.machines.machine import Machine

__all__ = ["ClassesNow", "PoolsNow", "RunningPymalloc"]

TRIES = 3
FIRST_SLOTS = 16


@dataclass(frozen=True)
class PoolsNow:
    """The arenas of all interpreters with the counts of their pools, from the tables of arenas.

    ``doubtful``: a table changed while it was read."""

    arenas: list[ArenaObject]
    doubtful: bool

    @property
    def pools(self) -> int:
        """The number of pools that hold blocks."""
        return sum(arena.ntotalpools - arena.nfreepools for arena in self.arenas)

    @property
    def free_pools(self) -> int:
        """The number of pools that hold no block, including pools not made yet: "unused pools" of
        ``sys._debugmallocstats``."""
        return sum(arena.nfreepools for arena in self.arenas)


@dataclass(frozen=True)
class ClassesNow:
    """The size classes, counted from the pools' headers. ``odd``: the number of headers that could not be read or
    cannot be right."""

    classes: Sequence[_native.SizeClass]
    odd: int


@dataclass(frozen=True)
class _Table:
    """The address of the pointer to a table of arenas, and the address of the table's length (None if unknown)."""

    pointer: int
    count_at: int | None

    @classmethod
    def of(cls, state: PoolState) -> _Table:
        return cls(state.table_pointer, state.count_at)


@dataclass(frozen=True)
class RunningPymalloc:
    """The addresses of the arena tables of a process's interpreters, and the sizes of its pools and arenas."""

    tables: list[_Table]
    pool_size: int
    arena_size: int
    alignment: int
    machine: Machine

    @classmethod
    def of(cls, pymalloc: Pymalloc, machine: Machine) -> RunningPymalloc | None:
        """Return an instance for the pymalloc that was located while the process was stopped; None if pymalloc has no
        pools yet."""
        if pymalloc.pool_size is None or pymalloc.arena_size is None:
            return None
        tables = [_Table.of(state) for state in pymalloc.states]
        return cls(tables, pymalloc.pool_size, pymalloc.arena_size, pymalloc.alignment, machine)

    def now(self, space: _native.Space) -> PoolsNow | None:
        """Return the arenas as they are now; None if a table cannot be read."""
        arenas: list[ArenaObject] = []
        doubtful = False
        for table in self.tables:
            try:
                rows, is_same = self._read(space, table)
            except Fault:
                return None
            arenas += self._arenas(rows, len(arenas))
            doubtful |= not is_same
        return PoolsNow(arenas, doubtful)

    def _read(self, space: _native.Space, table: _Table) -> tuple[bytes, bool]:
        """Return a table's bytes, and whether two reads found the table at the same address with the same bytes. Raises
        Fault."""
        raw, is_same = b"", False
        for _ in range(TRIES):
            place, count = self._place(space, table)
            raw = self._rows(space, place, count)
            is_same = raw == self._rows(space, place, count) and (place, count) == self._place(space, table)
            if is_same:
                break
        return raw, is_same

    def _place(self, space: _native.Space, table: _Table) -> tuple[int, int | None]:
        """Return the address of a table of arenas and its number of slots (None if unknown). Raises Fault."""
        count = None if table.count_at is None else min(space.u32(table.count_at), MAX_ARENAS)
        return space.word(table.pointer), count

    def _rows(self, space: _native.Space, place: int, count: int | None) -> bytes:
        """Return the bytes of the table of arenas at address ``place``, of ``count`` slots. Raises Fault.

        If ``count`` is None, the table is read in parts. Reading ends at the first invalid slot, or after two parts in
        a row without an arena. The first part has 16 slots. Each later part doubles the table, as the interpreter does
        when the table grows."""
        layout = self.machine.structure(ARENA_OBJECT)
        if count is not None:
            return space.read(place, count * layout.size)
        raw, length, empty = b"", FIRST_SLOTS, 0
        while len(raw) < MAX_ARENAS * layout.size and empty < 2:
            part = space.read_available(place + len(raw), length * layout.size - len(raw))
            rows = list(takewhile(is_slot, layout.iter_unpack(part[: len(part) // layout.size * layout.size])))
            raw += part[: len(rows) * layout.size]
            if len(raw) < length * layout.size:
                break
            empty = 0 if any(row[0] for row in rows) else empty + 1
            length *= 2
        return raw

    def _arenas(self, raw: bytes, first: int) -> Iterator[ArenaObject]:
        slots = self.machine.structure(ARENA_OBJECT).iter_unpack(raw)
        for index, (address, pool_address, free, total, *_links) in enumerate(slots):
            if address and free <= total <= self.arena_size // self.pool_size:
                yield ArenaObject(first + index, index, address, pool_address, free, total)

    def classes(self, space: _native.Space, now: PoolsNow) -> ClassesNow:
        """Return the size classes of the arenas in ``now``, read from the header of every pool. Raises
        KeyboardInterrupt.
        """
        rows = [ArenaRow(row.number, row.index, row.address, row.pool_address, self.arena_size) for row in now.arenas]
        pools = _native.read_pools(space, rows, self.pool_size, self.alignment)
        return ClassesNow(pools.classes(), len(pools.damage))
