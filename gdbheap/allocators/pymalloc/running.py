"""pymalloc in a process that runs on: its table of arenas, and the headers of its pools.

The table is read twice, and the pointer to it once more after that: it moves when it grows. A pool's header is four
words that one thread changes under the interpreter's lock; of all the pools of a busy process a few are in motion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from gdbheap import _native
from gdbheap.allocators.pymalloc.pools import ArenaRow, Pymalloc
from gdbheap.allocators.pymalloc.usedpools import ARENA_OBJECT, MAX_ARENAS, ArenaObject, PoolState, is_slot
from gdbheap.errors import Fault
from gdbheap.machines.machine import Machine

__all__ = ["ClassesNow", "PoolsNow", "RunningPymalloc"]

TRIES = 3
FIRST_SLOTS = 16


@dataclass(frozen=True)
class PoolsNow:
    """The arenas of all interpreters, and their pools by the table of arenas; ``doubtful``: it changed while it was
    read."""

    arenas: list[ArenaObject]
    doubtful: bool

    @property
    def pools(self) -> int:
        """Pools that hold blocks."""
        return sum(arena.ntotalpools - arena.nfreepools for arena in self.arenas)

    @property
    def free_pools(self) -> int:
        """Pools that hold none, carved or not: ``sys._debugmallocstats``' "unused pools"."""
        return sum(arena.nfreepools for arena in self.arenas)


@dataclass(frozen=True)
class ClassesNow:
    """The size classes, by the pools' headers; ``odd``: headers that could not be read, or not believed."""

    classes: Sequence[_native.SizeClass]
    odd: int


@dataclass(frozen=True)
class _Table:
    """Where the pointer to a table of arenas is, and where its length is, None if that is not known."""

    pointer: int
    count_at: int | None

    @classmethod
    def of(cls, state: PoolState) -> _Table:
        return cls(state.table_pointer, state.count_at)


@dataclass(frozen=True)
class RunningPymalloc:
    """Where the tables of arenas of a process's interpreters are, and its pools' and arenas' sizes."""

    tables: list[_Table]
    pool_size: int
    arena_size: int
    alignment: int
    machine: Machine

    @classmethod
    def of(cls, pymalloc: Pymalloc, machine: Machine) -> RunningPymalloc | None:
        """From what a look has located; None where it has no pools yet."""
        if pymalloc.pool_size is None or pymalloc.arena_size is None:
            return None
        tables = [_Table.of(state) for state in pymalloc.states]
        return cls(tables, pymalloc.pool_size, pymalloc.arena_size, pymalloc.alignment, machine)

    def now(self, space: _native.Space) -> PoolsNow | None:
        """The tables as they are; None where one cannot be read."""
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
        """A table's bytes, and whether they were the same twice and in the same place. Raises Fault."""
        raw, is_same = b"", False
        for _ in range(TRIES):
            place, count = self._place(space, table)
            raw = self._rows(space, place, count)
            is_same = raw == self._rows(space, place, count) and (place, count) == self._place(space, table)
            if is_same:
                break
        return raw, is_same

    def _place(self, space: _native.Space, table: _Table) -> tuple[int, int | None]:
        """The table, and how many slots it has if its length is known. Raises Fault."""
        count = None if table.count_at is None else min(space.u32(table.count_at), MAX_ARENAS)
        return space.word(table.pointer), count

    def _rows(self, space: _native.Space, place: int, count: int | None) -> bytes:
        """The bytes of a table. One whose length is not known is read as far as its slots look like some: it has 16 of
        them, or twice as many each time that it grows; two such parts without an arena are no part of it any more.
        Raises Fault."""
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
        """The size classes of those arenas: reads every pool's header. Raises KeyboardInterrupt."""
        rows = [ArenaRow(row.number, row.index, row.address, row.pool_address, self.arena_size) for row in now.arenas]
        pools = _native.read_pools(space, rows, self.pool_size, self.alignment)
        return ClassesNow(pools.classes(), len(pools.damage))
