"""Which free memory is not given back, where is it, and what pins it?

A hole is a maximal run of bytes inside an arena that nobody holds: neighbouring free chunks together, whether they lie
in bins, fast bins or thread caches. The top chunk is not a hole. In pymalloc's arenas: neighbouring free pools, or
neighbouring free blocks of one pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gdbheap.allocators.glibc.arenas import HEADER
from gdbheap.answers.describing import describe_blocks
from gdbheap.answers.fit import Fit, fit
from gdbheap.answers.ways import ways
from gdbheap.heap import Heap
from gdbheap.target.ranges import PAGE_SIZE

if TYPE_CHECKING:
    from gdbheap._native import Block


@dataclass(frozen=True)
class Neighbour:
    """The block before or behind a hole: malloc's pointer, size in bytes with its header, what it is, and the way that
    leads there (see ``ways``)."""

    address: int
    size: int
    what: str
    path: str | None = None


@dataclass(frozen=True)
class Hole:
    """One hole. ``address`` is what malloc would return for its first chunk, ``size`` the bytes of its chunks, headers
    included, ``resident`` the whole pages inside it that are in memory (None: not known)."""

    address: int
    size: int
    resident: int | None
    arena: int | None
    allocator: str
    before: Neighbour | None
    after: Neighbour | None


@dataclass(frozen=True)
class Holes:
    """The answer of ``heap holes``, largest first; the sums are over all that match, also when the list is cut.

    ``fit``: whether a request fits into what malloc has, None unless that was asked."""

    holes: list[Hole]
    count: int
    bytes: int
    resident: int | None
    minimum: int = 0
    fit: Fit | None = None


def holes(heap: Heap, minimum: int = 1 << 20, top: int | None = None, request: int | None = None) -> Holes:
    """Every hole of at least ``minimum`` bytes, and whether ``request`` bytes would fit.

    Raises Unsupported without glibc's malloc, UsageError for a request that malloc refuses."""
    found = _glibc_holes(heap, minimum) + _pymalloc_holes(heap, minimum) + _mimalloc_holes(heap, minimum)
    found.sort(key=lambda hole: (-hole.size, hole.address))
    residents = [hole.resident for hole in found]
    resident = None if None in residents or heap.target.pages is None else sum(r or 0 for r in residents)
    fitted = None if request is None else fit(heap, request)
    shown = _named(heap, found if top is None else found[:top])
    return Holes(shown, len(found), sum(hole.size for hole in found), resident, minimum, fitted)


def with_paths(heap: Heap, answer: Holes, listed: Sequence[Hole]) -> Holes:
    """The same answer; the neighbours of the holes in ``listed`` have the ways that lead there. Reads all
    references."""
    beside = [neighbour for hole in listed for neighbour in (hole.before, hole.after) if neighbour is not None]
    found = ways(heap, (neighbour.address for neighbour in beside))
    wanted = {hole.address for hole in listed}

    def name(neighbour: Neighbour | None) -> Neighbour | None:
        return None if neighbour is None else replace(neighbour, path=found.get(neighbour.address))

    named = [
        replace(hole, before=name(hole.before), after=name(hole.after)) if hole.address in wanted else hole
        for hole in answer.holes
    ]
    return replace(answer, holes=named)


def _glibc_holes(heap: Heap, minimum: int) -> list[Hole]:
    rows = heap.chunks.holes(max(minimum, 1))
    return [_hole(heap, "glibc", row[:2], heap.chunks.arena_of(row[0]), row[3:], HEADER) for row in rows]


def _pymalloc_holes(heap: Heap, minimum: int) -> list[Hole]:
    python = heap.python_or_none
    if python is None or minimum > (python.arena_size or 0):
        return []
    rows = python.pools.holes(heap.target.space, max(minimum, 1))
    return [_hole(heap, "pymalloc", row[:2], row[2], row[3:]) for row in rows]


def _mimalloc_holes(heap: Heap, minimum: int) -> list[Hole]:
    """Inside of segments; what is reserved beside them belongs to no arena's blocks."""
    if heap.mimalloc is None:
        return []
    return [_hole(heap, "mimalloc", row[:2], None, row[2:]) for row in heap.mimalloc.blocks.holes(max(minimum, 1))]


def _hole(
    heap: Heap,
    allocator: str,
    place: tuple[int, int],
    arena: int | None,
    beside: tuple[Block | None, Block | None],
    header: int = 0,
) -> Hole:
    """One hole, [start, end), with the blocks before and behind it, whose contents begin ``header`` bytes in."""
    (start, end), (before, behind) = place, beside
    neighbours = _neighbour(before, header), _neighbour(behind, header)
    return Hole(start + header, end - start, _resident(heap, start, end), arena, allocator, *neighbours)


def _resident(heap: Heap, start: int, end: int) -> int | None:
    """Bytes in whole resident pages inside [start, end): what could be given back."""
    if heap.target.pages is None:
        return None
    first, last = (start + PAGE_SIZE - 1) // PAGE_SIZE * PAGE_SIZE, end // PAGE_SIZE * PAGE_SIZE
    return heap.target.pages.count(first, last)[0] if first < last else 0


def _neighbour(block: Block | None, header: int) -> Neighbour | None:
    if block is None:
        return None
    address, size, state = block
    return Neighbour(address + header, size, state)


def _named(heap: Heap, found: list[Hole]) -> list[Hole]:
    """The same holes; neighbours in use get a description for their state."""
    blocks = [
        (neighbour.address, neighbour.size)
        for hole in found
        for neighbour in (hole.before, hole.after)
        if neighbour is not None and neighbour.what == "used"
    ]
    words = describe_blocks(heap, blocks) if blocks else {}

    def name(neighbour: Neighbour | None) -> Neighbour | None:
        if neighbour is None:
            return None
        return replace(neighbour, what=words.get(neighbour.address, neighbour.what))

    return [replace(hole, before=name(hole.before), after=name(hole.after)) for hole in found]
