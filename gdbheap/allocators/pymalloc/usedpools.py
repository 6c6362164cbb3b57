"""Find pymalloc's array ``usedpools`` and the table of arenas that belongs to it. The search is the same from CPython
2.7 to 3.15."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gdbheap import _native
from gdbheap.allocators.confirming import confirm
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.facts import Facts
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.target import Target

MIN_CLASSES = 32
MAX_CLASSES = 64
POOL_SIZES = (4 << 10, 16 << 10)
LARGEST_ARENA = 2 << 20
# struct arena_object {uintptr_t address; block *pool_address; uint nfreepools, ntotalpools; three pointers}.
ARENA_OBJECT = "PPIIPPP"
MAX_ARENAS = 1 << 22
MAX_ARENA_POOLS = 512
SLOTS_AT_ONCE = 4 << 10
SAMPLES = 64
# One sampled pool in eight may be damaged, so that 'heap check' can report it. If no table fits all samples, they are
# divided into eight parts, and each part is tried.
ONE_DAMAGED_IN = 8
# Since 3.12 usedpools is the first field of struct _obmalloc_state, and the pointer to the table lies at this offset.
STATE_TABLE = 512


@dataclass(frozen=True)
class ArenaObject:
    """An arena that exists, from its ``struct arena_object``.

    ``index``: its index in its own table. ``number``: its number among the arenas of all tables.
    """

    number: int
    index: int
    address: int
    pool_address: int
    nfreepools: int
    ntotalpools: int


class PoolSample(NamedTuple):
    """The address of a pool in use, and the index of its arena according to the pool's header."""

    pool: int
    arenaindex: int


@dataclass(frozen=True)
class ListHeads:
    """``usedpools``: its address, its number of size classes, and the loaded object whose data holds it."""

    address: int
    classes: int
    module: LoadedObject

    @property
    def alignment(self) -> int:
        """The difference between neighbouring size classes in bytes. The largest class has 512 bytes."""
        return 512 // self.classes

    def has_pools(self, target: Target) -> bool:
        """Return whether the lists have pools, and nearly every pool has a known size and is on the list of its own
        class.

        glibc's bins, which look similar, fail this test."""
        pools = self.listed(target, 4)
        sound = sum(szidx == index and self.pool_size(target, pool) in POOL_SIZES for index, pool, szidx in pools)
        return bool(sound) and are_most(sound, len(pools))

    def pool_size(self, target: Target, pool: int) -> int:
        """Return the size of the pool at ``pool`` in bytes.

        The pool's field ``maxnextoffset`` is the last offset at which a block fits, so the pool ends one block later.
        """
        szidx, _next, most = target.machine.structure("III").unpack(target.space.read(pool + 36, 12))
        return int(most + (szidx + 1) * self.alignment)

    def listed(self, target: Target, most: int) -> list[tuple[int, int, int]]:
        """Return (size class of the list, address of the pool, ``szidx``) for up to ``most`` pools of each list.

        ``szidx`` is the size class that the pool's header states.
        """
        found: list[tuple[int, int, int]] = []
        for index in range(self.classes):
            head = self.address + 16 * index - 16
            try:
                pool = target.space.word(head + 16)
                for _ in range(most):
                    if pool == head or pool % POOL_SIZES[0]:
                        break
                    found.append((index, pool, target.space.u32(pool + 36)))
                    pool = target.space.word(pool + 16)
            except Fault:
                continue
        return found


class PoolState:
    """The arenas of one ``usedpools`` whose lists have pools. Raises Unsupported if they are not found.

    ``first``: the number that its first arena gets among the arenas of all tables. ``count_at``: the address of the
    length of the table of arenas, or None if it was not found."""

    def __init__(self, target: Target, heads: ListHeads, facts: Facts, first: int = 0) -> None:
        self.target = target
        self._layout = target.machine.structure(ARENA_OBJECT)
        self.heads = heads
        self._facts = facts
        samples = self._sample_pools()
        self.pool_size = self._find_pool_size(samples)
        self.table, self.table_pointer = self._find_table(samples)
        self.count_at: int | None = None
        self.slots = self._count()
        self.arenas = self._read_arenas(first)

    @property
    def is_struct(self) -> bool:
        """Whether this ``usedpools`` is part of a ``struct _obmalloc_state``. If so, other interpreters may have such a
        struct too."""
        return self.table_pointer == self.heads.address + STATE_TABLE

    @property
    def arena_size(self) -> int:
        """The arena size in bytes: the smallest power of two into which the pools of the largest arena fit.

        An arena that is not aligned to the pool size has one pool less than fit into its size."""
        most = max((arena.ntotalpools for arena in self.arenas), default=0)
        return 1 << max(0, (most * self.pool_size - 1).bit_length())

    def _sample_pools(self) -> list[PoolSample]:
        """Return at most SAMPLES pools in use."""
        listed = self.heads.listed(self.target, SAMPLES // self.heads.classes + 1)
        pools = [pool for index, pool, szidx in listed if szidx == index]
        return [PoolSample(pool, self.target.space.u32(pool + 32)) for pool in pools][:SAMPLES]

    def _find_pool_size(self, samples: Sequence[PoolSample]) -> int:
        sizes = Counter(self.heads.pool_size(self.target, pool) for pool, _ in samples)
        ((size, count),) = sizes.most_common(1) or [(0, 0)]
        if size not in POOL_SIZES or not are_most(count, len(samples)):
            raise Unsupported(f"the pools of pymalloc disagree on their size: {sorted(sizes)}")
        return size

    def _find_table(self, samples: Sequence[PoolSample]) -> tuple[int, int]:
        """Return the address of the table of arenas, and the address of the pointer to it. Raises Unsupported if not
        found."""
        state = self.heads.address + STATE_TABLE
        ranges = [(state, state + self.target.machine.word)] + self.heads.module.writable_ranges()
        homes = [(m.start, m.end) for m in self.target.mappings if m.anonymous and m.private and m.writable]
        for parts in ([samples], [samples[part::ONE_DAMAGED_IN] for part in range(ONE_DAMAGED_IN)]):
            for start, end in ranges:
                tables = Counter[tuple[int, int]]()
                for part in parts:
                    found = _native.find_arena_tables(self.target.space, start, end, part, homes, LARGEST_ARENA)
                    if len({row.table for row in found}) == 1:
                        tables[found[0].table, found[0].word] += 1
                (((table, word), count),) = tables.most_common(1) or [((0, 0), 0)]
                if 2 * count > len(parts):
                    confirmed = confirm(self.heads.module, "arenas", word)
                    self._facts.add("arenas", word, f"fits the arenaindex of {len(samples)} pools", confirmed)
                    return table, word
        raise Unsupported(
            "pymalloc's table of arenas was not found: no pointer in the interpreter's data fits its pools"
        )

    def _count(self) -> int:
        """Return ``maxarenas``, the number of slots in the table of arenas.

        It lies right before ``arenas`` up to 3.11, and right after it since 3.12. If neither value is plausible, return
        the number of slots that look valid.
        """
        for offset in (-self.target.machine.word, self.target.machine.word):
            try:
                count = self.target.space.u32(self.table_pointer + offset)
            except Fault:
                continue
            if 0 < count <= MAX_ARENAS and self._fits(count):
                self.count_at = self.table_pointer + offset
                self._facts.add(
                    "maxarenas",
                    count,
                    f"the word {offset:+d} bytes from arenas",
                    confirm(self.heads.module, "maxarenas", self.table_pointer + offset),
                )
                return count
        return self._plausible_count()

    def _fits(self, count: int) -> bool:
        """Return whether the table has exactly ``count`` slots.

        The memory of the slots must be mapped, and every slot must be valid. Valid slots after the last one must be
        empty."""
        if not self.target.space.contains(self.table, count * self._layout.size):
            return False
        if count & (count - 1) and count % 16:
            return False
        return count == self._plausible_count(count) and not any(self._slots(count, self._plausible_count()))

    def _plausible_count(self, most: int = MAX_ARENAS) -> int:
        """Return the number of slots in a row, at most ``most``, that look valid.

        One slot too many does no harm, because an empty slot has no address."""
        count = 0
        for address in self._slots(0, most):
            if address is None:
                break
            count += 1
        return count

    def _slots(self, first: int, end: int) -> Iterator[int | None]:
        """Yield the address in each slot from ``first`` to ``end``: 0 for an empty slot, None for an invalid one.

        The iteration ends where memory cannot be read.
        """
        size = self._layout.size
        for start in range(first, end, SLOTS_AT_ONCE):
            count = min(SLOTS_AT_ONCE, end - start)
            raw = self.target.space.read_available(self.table + start * size, count * size)
            rows = list(self._layout.iter_unpack(raw[: len(raw) // size * size]))
            yield from (slot[0] if is_slot(slot) else None for slot in rows)
            if len(rows) < count:
                return

    def _read_arenas(self, first: int) -> list[ArenaObject]:
        raw = self.target.space.read(self.table, self.slots * self._layout.size)
        rows = enumerate(self._layout.iter_unpack(raw))
        slots = (ArenaObject(first + index, index, *slot[:4]) for index, slot in rows)
        return [slot for slot in slots if slot.address]


def are_most(sound: int, pools: int) -> bool:
    """Return whether at most one in ONE_DAMAGED_IN pools is damaged.

    ``pools``: the number of pools. ``sound``: how many of them are not damaged."""
    return (pools - sound) * ONE_DAMAGED_IN <= pools


def is_slot(slot: tuple[int, ...]) -> bool:
    """Return whether the fields of a ``struct arena_object`` have possible values. In an empty slot the address is
    0."""
    address, pool_address, free, total = slot[:4]
    if address == 0:
        return True
    return (
        address % POOL_SIZES[0] == 0
        and free <= total <= MAX_ARENA_POOLS
        and address <= pool_address <= address + LARGEST_ARENA
    )
