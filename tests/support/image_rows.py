"""Rows of an answer about an image of a heap, and the rows that are expected."""

from __future__ import annotations

from typing import Any

from images.heap import FREE_STATES, Arena, Image

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.answers.check import check
from gdbheap.heap import Heap
from support.library import chunks_at, warnings_of


def expected_arena(arena: Arena) -> dict[str, object]:
    """Return the figures of malloc_stats and the states of the chunks of an arena."""
    kinds = (("fast", "fast"), ("tcache", "tcache"), ("bins", "free"))
    bins = [{"kind": kind, "chunks": arena.count(state), "bytes": arena.bytes(state)} for kind, state in kinds]
    sizes = {name: arena.bytes(name) for name in ("free", "fast", "tcache", "top")}
    in_use = arena.system - sizes["free"] - sizes["fast"] - sizes["top"]
    counts = {"used_count": arena.count("used"), "free_count": arena.count(*FREE_STATES)}
    return {"address": arena.address, "system": arena.system, "in_use": in_use, **sizes, **counts, "bins": bins}


def arena_rows(answer: dict[str, Any]) -> list[dict[str, object]]:
    """Return the rows of `heap arenas` without the fields that only number or list heaps."""
    keys = ("address", "system", "in_use", "free", "fast", "tcache", "top", "used_count", "free_count", "bins")
    return [{key: row[key] for key in keys} for row in answer["rows"]]


def compare(heap: Heap, image: Image) -> None:
    """Check every block, every list and every number of the heap against the builder's table."""
    truth = image.chunks
    found = chunks_at(heap, [chunk.address + 16 for chunk in truth])
    wrong = [
        (hex(chunk.address), chunk.size, chunk.state, row)
        for chunk, row in zip(truth, found)
        if row != (chunk.address, chunk.size, chunk.state)
    ]
    assert not wrong, (len(wrong), wrong[:5], heap.damage[:5])
    assert not heap.damage and not [w for w in warnings_of(heap) if "resident" not in w], (
        heap.damage,
        warnings_of(heap),
    )
    glibc = heap.allocator(GlibcAllocator)
    assert sum(tally.count for region in glibc.chunks.totals() for tally in region.states) == len(truth)
    mapped = sorted((chunk.base, chunk.chunk, chunk.size) for chunk in glibc.mapped)
    assert mapped == sorted((chunk.base, chunk.chunk, chunk.size) for chunk in image.mapped)
    caches = {(cache.tid, cache.address): sorted(cache.lists) for cache in glibc.malloc.tcaches}
    expected = {
        (cache.tid, cache.address): sorted((index, entries[0], len(entries)) for index, entries in cache.lists.items())
        for cache in image.caches
    }
    assert caches == expected
    if any(cache.lists for cache in image.caches):
        assert glibc.malloc.safe_linking == image.glibc.safe_linking
    bins = {(row.arena, row.number): (row.chunks, row.bytes) for row in glibc.bins.rows}
    assert bins == {
        (index, number): (len(chunks), sum(chunk.size for chunk in chunks))
        for index, state in enumerate(glibc.malloc.arenas)
        for number, chunks in image.bins[state.address].items()
        if chunks
    }
    assert check(heap).ok, heap.damage
