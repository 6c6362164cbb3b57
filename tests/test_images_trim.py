"""The bytes that malloc_trim() would release from heaps of every glibc, page by page, by the builder's own table of
chunks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from images.heap import SHAPES, Arena, Chunk, Image
from images.layouts import GLIBCS, Glibc
from support.library import heap_of

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.answers.fit import largest_free
from gdbheap.answers.trim import MAX_PAD, trim

pytestmark = pytest.mark.cases(20)

PAGE = 4096
HEAD = 48
KEPT = ("free", "fast", "tcache", "top")


def runs(stretch: list[Chunk]) -> list[list[Chunk]]:
    """Return the runs of neighbours that malloc_consolidate() joins to one free chunk, without those that it adds to
    the top."""
    found: list[list[Chunk]] = [[]]
    for chunk in stretch:
        if chunk.state in ("free", "fast"):
            found[-1].append(chunk)
            continue
        if chunk.state == "top" and any(one.state == "fast" for one in found[-1]):
            found.pop()
        found.append([])
    return [run for run in found if run]


def pages(run: list[Chunk]) -> int:
    """Return how many pages are completely between the header of a free chunk and its end, counted one by one."""
    first, end = run[0].address, run[-1].end
    return sum(first + HEAD <= at and at + PAGE <= end for at in range(first // PAGE * PAGE, end, PAGE))


def top_of(arena: Arena) -> int:
    """Return the size of the top chunk including the chunks that malloc_consolidate() adds to it."""
    stretch = next(stretch for stretch in arena.stretches if stretch[-1].state == "top")
    before: list[Chunk] = []
    for chunk in reversed(stretch[:-1]):
        if chunk.state not in ("free", "fast"):
            break
        before.append(chunk)
    joins = any(chunk.state == "fast" for chunk in before)
    return stretch[-1].size + (sum(chunk.size for chunk in before) if joins else 0)


def expected(arena: Arena) -> tuple[int, int]:
    """Return (chunks with whole pages, bytes of these pages) of an arena."""
    found = [pages(run) for stretch in arena.stretches for run in runs(stretch)]
    return sum(count > 0 for count in found), PAGE * sum(found)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("glibc", GLIBCS, ids=lambda glibc: glibc.name)
def test_whole_pages(glibc: Glibc, shape: str, rng: random.Random, tmp_path: Path) -> None:
    """Check every arena; only the main arena's top is released, and only if it ends at the break."""
    image = Image(glibc, rng, shape)
    with heap_of(str(image.save(tmp_path / "core"))) as heap:
        found = {row.address: (row.chunks, row.pages) for row in trim(heap, MAX_PAD).rows}
        with_top = {row.address: (row.chunks, row.pages) for row in trim(heap).rows}
    assert found == {arena.address: expected(arena) for arena in image.arenas}
    main = image.arenas[0]
    released = max(top_of(main) - 33, 0) // PAGE * PAGE if shape == "sbrk" else 0
    if shape in ("sbrk", "no sbrk"):
        assert with_top == {**found, main.address: (found[main.address][0], found[main.address][1] + released)}


def sparse_image(glibc: Glibc, rng: random.Random, shape: str) -> Image:
    """Return an image whose pages of zeros were never resident, so that it is known which pages are."""
    image = Image(glibc, rng, shape, large_tops=rng.random() < 0.5)
    image.memory.sparse = True
    return image


@pytest.mark.cases(6)
@pytest.mark.parametrize("shape", ["sbrk", "no sbrk"])
@pytest.mark.parametrize("glibc", GLIBCS, ids=lambda glibc: glibc.name)
def test_tops_are_returned_or_kept(glibc: Glibc, shape: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the resident whole pages of each arena's top are either returned or kept."""
    image = Image(glibc, rng, shape, large_tops=True)
    image.memory.sparse = True
    with heap_of(str(image.save(tmp_path / "core"))) as heap:
        rows = trim(heap).rows
    assert any(row.top_predicted for row in rows) == (shape == "sbrk")
    by_address = {arena.address: arena for arena in image.arenas}
    for row in rows:
        arena = by_address[row.address]
        end = next(stretch[-1].end for stretch in arena.stretches if stretch[-1].state == "top")
        start = -(-(end - top_of(arena)) // PAGE) * PAGE
        assert (row.top_predicted or 0) + (row.top_kept or 0) == image.memory.resident(start, end)
        assert row.index == 0 or not row.top_predicted


@pytest.mark.cases(6)
@pytest.mark.parametrize("glibc", GLIBCS, ids=lambda glibc: glibc.name)
def test_why_free_memory_stays(glibc: Glibc, rng: random.Random, tmp_path: Path) -> None:
    """Check that chunks in thread caches and tops count under their own reasons, and only fragments as such."""
    image = sparse_image(glibc, rng, "sbrk")
    with heap_of(str(image.save(tmp_path / "core"))) as heap:
        malloc, found = heap.allocator(GlibcAllocator), trim(heap)
        free = sum(image.memory.resident(chunk.address, chunk.end) for chunk in image.chunks if chunk.state in KEPT)
        kept = {row.id: row.bytes for row in malloc.kept(free, found.pages)}
    tops = sum(row.top_kept or 0 for row in found.rows)
    rest = free - (found.predicted or 0) - tops
    cached = min(rest, sum(arena.bytes("tcache") for arena in image.arenas))
    assert (kept["glibc.top"], kept["glibc.tcache"], kept["glibc.fragments"]) == (tops, cached, rest - cached)
    assert cached > 0 or not glibc.cache


@pytest.mark.cases(6)
@pytest.mark.parametrize("glibc", GLIBCS, ids=lambda glibc: glibc.name)
def test_largest_free_chunk(glibc: Glibc, rng: random.Random, tmp_path: Path) -> None:
    """Check that neighbours in bins and fast bins count as the one chunk that malloc makes of them."""
    image = Image(glibc, rng)
    with heap_of(str(image.save(tmp_path / "core"))) as heap:
        addresses = [arena.address for arena in heap.allocator(GlibcAllocator).malloc.arenas]
        found = {addresses[index]: size for index, size in largest_free(heap).items()}
    sizes = {
        arena.address: [sum(chunk.size for chunk in run) for stretch in arena.stretches for run in runs(stretch)]
        for arena in image.arenas
    }
    assert found == {address: max(own) for address, own in sizes.items() if own}
