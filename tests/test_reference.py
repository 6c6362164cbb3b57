"""gdbheap against the plain walkers of tests/reference: independent code with the same figures."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from reference import glibc, pymalloc
from support.library import chunks_at, heap_of
from support.programs import KINDS, Running, ask, c_program, python_program, running

from gdbheap.answers.at import at

RECORDERS = {
    "1 thread": (1, ""),
    "8 threads": (8, ""),
    "8 threads, 2 arenas": (8, "glibc.malloc.arena_max=2"),
    "no tcache": (3, "glibc.malloc.tcache_count=0"),
    "large tcache": (2, "glibc.malloc.tcache_count=60"),
    "transparent huge pages": (2, "glibc.malloc.hugetlb=1"),
}


def check_arenas(target: Running, walk: glibc.Walk) -> None:
    """Compare each figure of each arena."""
    rows = sorted(ask("arenas", str(target.pid))["rows"], key=lambda row: int(row["index"]))
    assert [row["address"] for row in rows] == [arena.address for arena in walk.arenas]
    for row, arena in zip(rows, walk.arenas):
        sizes = {key: row[key] for key in ("system", "fast", "tcache", "top", "free")}
        assert sizes == {"system": arena.system, **{s: arena.bytes_of(s) for s in ("fast", "tcache", "top", "free")}}
        assert row["in_use"] == arena.bytes_of("used") + arena.bytes_of("tcache") + overhead(arena)
        counts = (row["used_count"], row["free_count"])
        assert counts == (arena.count_of("used"), sum(arena.count_of(s) for s in ("free", "fast", "tcache")))


def overhead(arena: glibc.Arena) -> int:
    """Return the bytes of an arena that belong to no chunk but that malloc_stats() counts as in use."""
    return arena.system - sum(size for size, _ in arena.chunks.values())


def check_chunks(target: Running, walk: glibc.Walk) -> None:
    """Compare size and state of each chunk, asked for by an address inside it."""
    chunks = {header: chunk for arena in walk.arenas for header, chunk in arena.chunks.items()}
    with heap_of(str(target.pid)) as heap:
        found = chunks_at(heap, [header + 16 for header in chunks])
    assert found == [(header, size, state) for header, (size, state) in chunks.items()]


@pytest.mark.parametrize("name", RECORDERS)
def test_glibc_of_recorder(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check random chunks in one or more arenas."""
    threads, tunables = RECORDERS[name]
    arguments = (threads, rng.getrandbits(30), 20_000, 2000, 100_000, 0, tmp_path / "table")
    with running(c_program("recorder", *arguments), tmp_path, {"GLIBC_TUNABLES": tunables}) as target:
        walk = glibc.Walk(target.pid)
        check_arenas(target, walk)
        check_chunks(target, walk)


@pytest.mark.parametrize("program", ["pools", "fragmented"])
@pytest.mark.parametrize("kind", KINDS)
def test_glibc_of_python(kind: str, program: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the chunks of an interpreter against the plain walker."""
    with running(python_program(kind, program, rng.getrandbits(32), 300), tmp_path) as target:
        walk = glibc.Walk(target.pid)
        check_arenas(target, walk)
        check_chunks(target, walk)


@pytest.mark.parametrize("kind", KINDS)
def test_pymalloc(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check each size class's pools and blocks, and the state of single blocks."""
    with running(python_program(kind, "pools", rng.getrandbits(32), rng.randrange(30_000)), tmp_path) as target:
        pools = list(pymalloc.pools(target.pid))
        answer = ask("pools", str(target.pid))
        blocks = {block: pool for pool in pools for block in pool.used | pool.free}
        sample = rng.sample(sorted(blocks), min(1000, len(blocks)))
        with heap_of(str(target.pid)) as heap:
            found = {block: at(heap, block + rng.randrange(blocks[block].size)).block for block in sample}
    assert {
        row["size"]: (row["pools"], row["used_count"], row["free_count"]) for row in answer["rows"] if row["pools"]
    } == {size: totals(pools, size) for size in {pool.size for pool in pools}}
    for block, pool in ((block, blocks[block]) for block in sample):
        state = "used" if block in pool.used else "free"
        one = found[block]
        assert one is not None and (one.address, one.size, one.allocator) == (block, pool.size, "pymalloc"), hex(block)
        assert one.state == state, hex(block)


def totals(pools: list[pymalloc.Pool], size: int) -> tuple[int, int, int]:
    """Return the pools, used and free blocks of a size class."""
    own = [pool for pool in pools if pool.size == size]
    return len(own), sum(len(pool.used) for pool in own), sum(len(pool.free) for pool in own)
