"""CPython's pymalloc at one stop, found without symbols and without knowing the version.

``usedpools`` is an array of list heads, one for each size class; the pools on its lists tell the pool size, and the
table ``arenas`` is the one that fits every pool's ``arenaindex``. The same search finds it in 2.7 to 3.15.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.allocators.glibc_locate import confirm
from gdbheap.errors import Fault, NotAPython, Unsupported
from gdbheap.layout.facts import Facts
from gdbheap.target.elf import LoadedObject
from gdbheap.target.target import Damage, Target

LEAST_CLASSES = 32
POOL_SIZES = (4096, 16384)
LARGEST_ARENA = 2 << 20
ARENA_OBJECT = struct.Struct("<QQIIQQQ")
MOST_ARENAS = 1 << 22
MOST_ARENA_POOLS = 512
SLOTS_AT_ONCE = 4096
SAMPLES = 64
HEADER = 48


@dataclass(frozen=True)
class ArenaObject:
    """``struct arena_object`` of an arena that is there."""

    index: int
    address: int
    pool_address: int
    nfreepools: int
    ntotalpools: int


def python_first(target: Target) -> list[LoadedObject]:
    """The loaded objects, those named like Python first, its extension modules next."""

    def rank(loaded: LoadedObject) -> int:
        name = loaded.path.rsplit("/", 1)[-1]
        return 0 if name.startswith(("python", "libpython")) else 1 if "python" in name else 2

    return sorted(target.objects, key=rank)


def has_python(target: Target) -> bool:
    """Whether any loaded object carries CPython: by its name, or by exporting its types."""
    return any("python" in o.path.rsplit("/", 1)[-1] or o.exported("PyType_Type") for o in target.objects)


class Pymalloc:
    """pymalloc in one target. Raises NotAPython or Unsupported at construction."""

    def __init__(self, target: Target, facts: Facts) -> None:
        self.target = target
        self.facts = facts
        self.damage: list[Damage] = []
        if not has_python(target):
            raise NotAPython(
                "there is no Python in this process: no loaded object is named python or exports PyType_Type"
            )
        self.usedpools, self.class_count, self.module = self._find_usedpools()
        self.alignment = 512 // self.class_count
        samples = self._sample_pools()
        self.pool_size = self._find_pool_size(samples)
        self.table, self.table_pointer = self._find_table(samples)
        self.arenas = self._read_arenas()
        most = max((arena.ntotalpools for arena in self.arenas), default=0)
        self.arena_size = 1 << max(0, (most * self.pool_size - 1).bit_length())
        facts.add("pymalloc pool size", self.pool_size, "nextoffset limits of the pools in use", "every pool sampled")
        facts.add("pymalloc alignment", self.alignment, f"usedpools has {self.class_count} classes")
        facts.add("pymalloc arena size", self.arena_size, "ntotalpools of its arenas")
        self.pools = self._read_pools()

    def _find_usedpools(self) -> tuple[int, int, LoadedObject]:
        tried: list[str] = []
        for loaded in python_first(self.target):
            tried.append(loaded.path.rsplit("/", 1)[-1])
            for start, end in loaded.writable_ranges():
                for address, count in _native.find_list_heads(self.target.space, start, end, LEAST_CLASSES):
                    if self._is_usedpools(address, count):
                        classes = 64 if count >= 64 else LEAST_CLASSES
                        confirmed = confirm(loaded, "usedpools", address)
                        self.facts.add(
                            "usedpools", address, f"{count} list heads in a row, with pools on them", confirmed
                        )
                        return address, classes, loaded
        raise Unsupported(
            f"no pymalloc with pools in use was found (looked for usedpools in {', '.join(tried[:6])}): "
            "PYTHONMALLOC=malloc, another allocator, or an interpreter that is not known"
        )

    def _is_usedpools(self, address: int, count: int) -> bool:
        """glibc's bins look alike: here every pool on a list says its own class, and there is at least one."""
        pools = list(self._listed_pools(address, min(count, 64), 4))
        return bool(pools) and all(szidx == index for index, _pool, szidx in pools)

    def _listed_pools(self, address: int, classes: int, most: int) -> list[tuple[int, int, int]]:
        """(class, pool, szidx) of up to ``most`` pools on each list."""
        found: list[tuple[int, int, int]] = []
        for index in range(classes):
            head = address + 16 * index - 16
            try:
                pool = self.target.space.u64(head + 16)
                for _ in range(most):
                    if pool == head or pool % POOL_SIZES[0]:
                        break
                    found.append((index, pool, self.target.space.u32(pool + 36)))
                    pool = self.target.space.u64(pool + 16)
            except Fault:
                continue
        return found

    def _sample_pools(self) -> list[tuple[int, int]]:
        """(pool, arenaindex) of some pools in use."""
        listed = self._listed_pools(self.usedpools, self.class_count, SAMPLES // self.class_count + 1)
        return [(pool, self.target.space.u32(pool + 32)) for _, pool, _ in listed][:SAMPLES]

    def _find_pool_size(self, samples: list[tuple[int, int]]) -> int:
        """``maxnextoffset`` is the last offset at which a block still fits: the pool ends one block later."""
        sizes = {self._pool_end(pool) for pool, _ in samples}
        if len(sizes) != 1 or not sizes <= set(POOL_SIZES):
            raise Unsupported(f"the pools of pymalloc disagree on their size: {sorted(sizes)}")
        return sizes.pop()

    def _pool_end(self, pool: int) -> int:
        szidx, _next, most = struct.unpack("<III", self.target.space.read(pool + 36, 12))
        return int(most + (szidx + 1) * self.alignment)

    def _find_table(self, samples: list[tuple[int, int]]) -> tuple[int, int]:
        """The table of arenas and the address of the pointer to it."""
        state = self.usedpools + 512
        ranges = [(state, state + 8)] + self.module.writable_ranges()
        homes = [(m.start, m.end) for m in self.target.mappings if m.anonymous and m.private and m.writable]
        for start, end in ranges:
            found = _native.find_arena_tables(self.target.space, start, end, samples, homes, LARGEST_ARENA)
            tables = {table for _, table in found}
            if len(tables) == 1:
                confirmed = confirm(self.module, "arenas", found[0][0])
                self.facts.add("arenas", found[0][0], f"fits the arenaindex of {len(samples)} pools", confirmed)
                return found[0][1], found[0][0]
        raise Unsupported(
            "pymalloc's table of arenas was not found: no pointer in the interpreter's data fits its pools"
        )

    def _count(self) -> int:
        """``maxarenas``: right before ``arenas`` in 3.11 and older, right behind it since 3.12."""
        for offset in (-8, 8):
            try:
                count = self.target.space.u32(self.table_pointer + offset)
            except Fault:
                continue
            if 0 < count <= MOST_ARENAS and self._fits(count):
                self.facts.add(
                    "maxarenas",
                    count,
                    f"the word {offset:+d} bytes from arenas",
                    confirm(self.module, "maxarenas", self.table_pointer + offset),
                )
                return count
        return self._plausible_count()

    def _fits(self, count: int) -> bool:
        if not self.target.space.contains(self.table, count * ARENA_OBJECT.size):
            return False
        return count == self._plausible_count(count) and (count & (count - 1) == 0 or count % 16 == 0)

    def _plausible_count(self, most: int = MOST_ARENAS) -> int:
        """How many slots in a row look like arenas; one too many does no harm: an empty slot has no address."""
        count = 0
        while count < most:
            block = min(SLOTS_AT_ONCE, most - count)
            raw = self.target.space.read_available(self.table + count * ARENA_OBJECT.size, block * ARENA_OBJECT.size)
            slots = list(ARENA_OBJECT.iter_unpack(raw[: len(raw) // ARENA_OBJECT.size * ARENA_OBJECT.size]))
            good = next((index for index, slot in enumerate(slots) if not _is_slot(slot)), len(slots))
            count += good
            if good < block:
                break
        return count

    def _read_arenas(self) -> list[ArenaObject]:
        raw = self.target.space.read(self.table, self._count() * ARENA_OBJECT.size)
        slots = (ArenaObject(index, *slot[:4]) for index, slot in enumerate(ARENA_OBJECT.iter_unpack(raw)))
        return [slot for slot in slots if slot.address]

    def _read_pools(self) -> _native.Pools:
        rows = [(arena.index, arena.address, arena.pool_address, self.arena_size) for arena in self.arenas]
        pools = _native.read_pools(self.target.space, rows, self.pool_size, self.alignment)
        self.damage.extend(Damage(*row) for row in pools.damage)
        return pools

    @property
    def free_pools(self) -> int:
        """``unused pools`` of ``sys._debugmallocstats()``: the sum of ``nfreepools``, carved or not."""
        return sum(arena.nfreepools for arena in self.arenas)

    def ranges(self) -> list[tuple[int, int]]:
        """(start, end) of every arena, ascending."""
        return self.pools.arena_ranges()


def _is_slot(slot: tuple[int, ...]) -> bool:
    address, pool_address, free, total = slot[:4]
    if address == 0:
        return True
    return (
        address % 4096 == 0 and free <= total <= MOST_ARENA_POOLS and address <= pool_address <= address + LARGEST_ARENA
    )
