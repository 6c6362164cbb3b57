"""What malloc_trim() would release of heaps of every glibc, page by page, by the builder's own table of chunks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from images.heap import SHAPES, Arena, Chunk, Image
from images.layouts import GLIBCS, Glibc
from support.library import heap_of

from gdbheap.answers.trim import MAX_PAD, trim

pytestmark = pytest.mark.cases(20)

PAGE = 4096
HEAD = 48


def runs(stretch: list[Chunk]) -> list[list[Chunk]]:
    """Return the neighbours that malloc_consolidate() makes one free chunk of; what it adds to the top is none."""
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
    """Return how many pages lie wholly between the head of a free chunk and its end, looked at one by one."""
    first, end = run[0].address, run[-1].end
    return sum(first + HEAD <= at and at + PAGE <= end for at in range(first // PAGE * PAGE, end, PAGE))


def top_of(arena: Arena) -> int:
    """Return the size of the top chunk with what malloc_consolidate() adds to it."""
    stretch = next(stretch for stretch in arena.stretches if stretch[-1].state == "top")
    before: list[Chunk] = []
    for chunk in reversed(stretch[:-1]):
        if chunk.state not in ("free", "fast"):
            break
        before.append(chunk)
    joins = any(chunk.state == "fast" for chunk in before)
    return stretch[-1].size + (sum(chunk.size for chunk in before) if joins else 0)


def expected(arena: Arena) -> tuple[int, int]:
    """Return (chunks with whole pages, bytes of those) of an arena."""
    found = [pages(run) for stretch in arena.stretches for run in runs(stretch)]
    return sum(count > 0 for count in found), PAGE * sum(found)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("glibc", GLIBCS, ids=lambda glibc: glibc.name)
def test_whole_pages(glibc: Glibc, shape: str, rng: random.Random, tmp_path: Path) -> None:
    """Of every arena; the top goes where it ends at the break, and only the main arena's."""
    image = Image(glibc, rng, shape)
    with heap_of(str(image.save(tmp_path / "core"))) as heap:
        found = {row.address: (row.chunks, row.pages) for row in trim(heap, MAX_PAD).rows}
        with_top = {row.address: (row.chunks, row.pages) for row in trim(heap).rows}
    assert found == {arena.address: expected(arena) for arena in image.arenas}
    main = image.arenas[0]
    released = max(top_of(main) - 33, 0) // PAGE * PAGE if shape == "sbrk" else 0
    if shape in ("sbrk", "no sbrk"):
        assert with_top == {**found, main.address: (found[main.address][0], found[main.address][1] + released)}
