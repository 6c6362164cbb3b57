"""One wrong word in a pool of pymalloc: ``heap check`` names the pool, and every other pool keeps its figures."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest
from reference import pymalloc
from support.core_words import Memory
from support.library import heap_of
from support.programs import GCORE, KINDS, ask, python_program, running

from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.answers.check import check

# Offsets in a pool's header (Objects/obmalloc.c), and the size of a pool since 3.10.
COUNT, FREE_BLOCK, ARENA, CLASS, NEXT = 0, 8, 32, 36, 40
CLASSES = 32


@dataclass(frozen=True)
class Core:
    """A core, and the pools in it."""

    path: Path
    pools: list[pymalloc.Pool]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Core:
    """Return a core of a Python with pools of all kinds, without damage."""
    folder = tmp_path_factory.mktemp("pools")
    with running(python_program(KINDS[0], "pools", random.getrandbits(32), 20_000), folder) as target:
        found = list(pymalloc.pools(target.pid))
        path = Path(target.as_form(GCORE))
    assert ask("check", str(path))["damage"] == []
    return Core(path, found)


def half(memory: Memory, address: int, value: int) -> tuple[int, int]:
    """Return (address, word) with ``value`` in the half of a word at ``address``."""
    start = address // 8 * 8
    raw = bytearray(memory.word(start).to_bytes(8, "little"))
    struct.pack_into("<I", raw, address - start, value)
    return start, int.from_bytes(raw, "little")


def wrong_count(memory: Memory, pool: pymalloc.Pool, rng: random.Random) -> tuple[int, int]:
    """Return one used block more or less than there is, or more than the pool has."""
    count = len(pool.used)
    wrong = [count + 1, count - 1, count + 5000]
    return half(memory, pool.address + COUNT, rng.choice([number for number in wrong if number > 0]))


def wrong_arena(memory: Memory, pool: pymalloc.Pool, rng: random.Random) -> tuple[int, int]:
    """Return the index of another arena."""
    return half(memory, pool.address + ARENA, 1_000_000 + rng.randrange(1000))


def wrong_class(memory: Memory, pool: pymalloc.Pool, rng: random.Random) -> tuple[int, int]:
    """Return a size class that does not exist: the first such or any."""
    return half(memory, pool.address + CLASS, rng.choice([CLASSES, rng.randrange(CLASSES, 1 << 32)]))


def wrong_next(memory: Memory, pool: pymalloc.Pool, rng: random.Random) -> tuple[int, int]:
    """Return a place outside of the pool's blocks for the next new block."""
    return half(memory, pool.address + NEXT, rng.choice([0, pymalloc.HEADER - 16, pymalloc.POOL + 16, 1 << 31]))


def wrong_link(memory: Memory, pool: pymalloc.Pool, rng: random.Random) -> tuple[int, int]:
    """Return a link of the chain of free blocks into another pool, between two blocks, or to itself."""
    first = memory.word(pool.address + FREE_BLOCK)
    return first, rng.choice([first, first + 8, first + pymalloc.POOL, pool.address + pymalloc.HEADER + 8, 0x10])


DAMAGES = {
    "ref.count of a pool": wrong_count,
    "arenaindex of a pool": wrong_arena,
    "szidx of a pool": wrong_class,
    "nextoffset of a pool": wrong_next,
    "free list of a pool": wrong_link,
}
# A count that the pool could have disagrees with the chain.
OTHERWISE = {"ref.count of a pool": {"ref.count of a pool", "free list of a pool"}}


@pytest.mark.parametrize("what", DAMAGES)
def test_one_wrong_word(what: str, rng: random.Random, core: Core) -> None:
    """Check that a pool with one wrong word is named exactly once, with the reason, and that the repaired core has no
    damage.
    """
    memory = Memory(core.path)
    chained = [pool for pool in core.pools if memory.word(pool.address + FREE_BLOCK)]
    for pool in rng.sample(chained, 2):
        place, word = DAMAGES[what](memory, pool, rng)
        old = memory.word(place)
        memory.put(place, word)
        try:
            with heap_of(str(core.path)) as heap:
                answer = check(heap)
                found = [row.what for row in heap.damage if row.address == pool.address]
                others = [row for row in heap.damage if row.what in DAMAGES and row.address != pool.address]
        finally:
            memory.put(place, old)
        assert not answer.ok and others == [] and len(found) == 1, (hex(pool.address), found, others)
        assert found[0] in OTHERWISE.get(what, {what}), (found, what, hex(word))
    with heap_of(str(core.path)) as heap:
        assert check(heap).ok and heap.allocator(PymallocAllocator).damage == []


def test_status_of_a_damaged_pool(rng: random.Random, core: Core) -> None:
    """Check that the command ends with status 1 and lists the pool."""
    memory = Memory(core.path)
    pool = rng.choice(core.pools)
    place, word = wrong_class(memory, pool, rng)
    old = memory.word(place)
    memory.put(place, word)
    try:
        answer = ask("check", str(core.path), status=1)
    finally:
        memory.put(place, old)
    assert answer["ok"] is False
    assert [row["what"] for row in answer["damage"] if row["address"] == pool.address] == ["szidx of a pool"]
