"""Every glibc since 2.17, most of which cannot run here: heaps laid out by the tests, and the answers to them.

The truth is the builder's own table (tests/images): the kind of each chunk, the contents of each arena and of each
thread's cache. Answers must equal it to the byte.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from images.heap import SHAPES, Image
from images.layouts import GLIBCS, Glibc
from support.image_rows import arena_rows, compare, expected_arena
from support.library import heap_of
from support.programs import ask, c_program, running

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.answers.at import find_block

pytestmark = pytest.mark.cases(20)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("glibc", GLIBCS, ids=lambda glibc: glibc.name)
def test_every_chunk(glibc: Glibc, shape: str, rng: random.Random, tmp_path: Path) -> None:
    """Check state and size of every block, every mmapped chunk, and every list of every thread's cache."""
    image = Image(glibc, rng, shape)
    with heap_of(str(image.save(tmp_path / "core"))) as heap:
        compare(heap, image)


@pytest.mark.parametrize("glibc", GLIBCS, ids=lambda glibc: glibc.name)
def test_answers(glibc: Glibc, rng: random.Random, tmp_path: Path) -> None:
    """Check the output of the commands: arenas, mmapped chunks, totals, holes, and no damage."""
    image = Image(glibc, rng, rng.choice(SHAPES))
    core = str(image.save(tmp_path / "core"))
    answer = ask("arenas", core)
    expected = {arena.address: expected_arena(arena) for arena in image.arenas}
    assert {row["address"]: row for row in arena_rows(answer)} == expected
    mapped = sum(chunk.size for chunk in image.mapped)
    assert answer["mmapped_chunks"] == {"count": len(image.mapped), "bytes": mapped}
    assert answer["total"]["system"] == sum(arena.system for arena in image.arenas) + mapped
    holes = ask("holes", core, "--min=1", "--top=1000000")
    assert [(hole["address"], hole["size"]) for hole in holes["rows"]] == image.holes()
    assert ask("check", core)["ok"] is True


@pytest.mark.parametrize("glibc", [glibc for glibc in GLIBCS if glibc.par.hp_pagesize], ids=lambda glibc: glibc.name)
def test_huge_pages(glibc: Glibc, rng: random.Random, tmp_path: Path) -> None:
    """Check glibc.malloc.hugetlb=2: heaps, extents and mmapped chunks of 2 MiB pages; heaps of threads start at
    multiples of 8 MiB."""
    image = Image(glibc, rng, "no sbrk", threads=2, arenas=2, huge=2 << 20)
    with heap_of(str(image.save(tmp_path / "core"))) as heap:
        compare(heap, image)


@pytest.mark.parametrize("glibc", [g for g in GLIBCS if g.cache and g.cache.remaining], ids=lambda glibc: glibc.name)
def test_large_chunks_in_caches(glibc: Glibc, rng: random.Random, tmp_path: Path) -> None:
    """Check glibc.malloc.tcache_max: caches have chunks up to 4 MiB, since 2.43 also mmapped ones."""
    image = Image(glibc, rng, rng.choice(SHAPES), large_caches=True)
    waiting = {entry for cache in image.caches for entries in cache.lists.values() for entry in entries}
    with heap_of(str(image.save(tmp_path / "core"))) as heap:
        compare(heap, image)
        blocks = [find_block(heap, chunk.chunk + 16) for chunk in image.mapped]
    states = {block.address: block.state for block in blocks if block}
    assert states == {chunk.chunk + 16: "tcache" if chunk.chunk + 16 in waiting else "used" for chunk in image.mapped}


@pytest.mark.parametrize("glibc", GLIBCS, ids=lambda glibc: glibc.name)
def test_before_the_first_malloc(glibc: Glibc, rng: random.Random, tmp_path: Path) -> None:
    """Check a program that has not called malloc yet: one empty arena."""
    image = Image(glibc, rng, "unused", threads=1, arenas=1)
    core = str(image.save(tmp_path / "core"))
    assert arena_rows(ask("arenas", core)) == [expected_arena(image.arenas[0])]
    assert ask("check", core)["ok"] is True


@pytest.mark.parametrize("glibc", GLIBCS, ids=lambda glibc: glibc.name)
def test_lone_fencepost(glibc: Glibc, rng: random.Random, tmp_path: Path) -> None:
    """Check heaps that ended with a top of 48 bytes: fenceposts of 32 bytes and of size 0."""
    image = Image(glibc, rng, arenas=2, lone_fenceposts=True)
    with heap_of(str(image.save(tmp_path / "core"))) as heap:
        compare(heap, image)


def test_program_without_malloc(tmp_path: Path) -> None:
    """Check a real program, with the glibc of this machine."""
    with running(c_program("idle"), tmp_path) as target:
        answer = ask("arenas", str(target.pid))
        assert [(row["system"], row["used_count"]) for row in answer["rows"]] == [(0, 0)]
        assert answer["mmapped_chunks"] == {"count": 0, "bytes": 0}
        assert ask("check", str(target.pid))["ok"] is True


@pytest.mark.parametrize("glibc", GLIBCS, ids=lambda glibc: glibc.name)
def test_books_of_mmapped_chunks_half_changed(glibc: Glibc, rng: random.Random, tmp_path: Path) -> None:
    """Check that mp_ is found although a thread has counted a mapped or unmapped chunk but not yet its bytes."""
    image = Image(glibc, rng, rng.choice(SHAPES))
    with heap_of(str(image.save(tmp_path / "whole"))) as heap:
        par = heap.allocator(GlibcAllocator).malloc.par
    place = par.address + par.layout["n_mmaps"]
    word = image.memory.word(place // 8 * 8)
    image.memory.put(place // 8 * 8, word + (1 << place % 8 * 8))
    with heap_of(str(image.save(tmp_path / "torn"))) as heap:
        assert (
            heap.allocator(GlibcAllocator).malloc.par.address,
            heap.allocator(GlibcAllocator).malloc.par.layout,
        ) == (par.address, par.layout)
        assert heap.allocator(GlibcAllocator).malloc.par.n_mmaps == par.n_mmaps + 1
