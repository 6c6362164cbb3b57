"""List the holes of the heap: free memory that is not returned to the kernel, and the blocks next to it.

A hole is a maximal run of free bytes among an allocator's blocks. The free end of a heap, where the heap grows, is not
a hole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

from gdbheap import _native
from gdbheap.allocators.allocator import Allocator, HoleRow
from gdbheap.answers.accounting.describing import BlockKind, describe_blocks
from gdbheap.answers.accounting.paths import ways
from gdbheap.answers.fit import Fit, fit
from gdbheap.dataclass import dataclass
from gdbheap.documents import renamed_keys
from gdbheap.heap import Heap
from gdbheap.stacks import AllocatingCall
from gdbheap.text import Sentence

# A search for smaller holes asks for holes of a 16th of the size.
STEP = 4


@dataclass(frozen=True)
class Neighbour:
    """The block before or after a hole. ``what``: a description of its contents. ``path``: the path from a root to it.
    ``made``: the recorded call that allocated it. ``path`` and ``made`` are None unless requested."""

    address: int
    size: int
    what: str
    path: str | None = None
    block_kind: BlockKind | None = None
    made: AllocatingCall | None = None

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``content`` of a format 1 file with today's key names."""
        return renamed_keys(content, {"kind": "block_kind"})


@dataclass(frozen=True)
class Hole:
    """One hole. ``address``: the pointer that malloc would return for its first chunk."""

    address: int
    size: int
    resident: int | None
    arena: int | None
    allocator: str
    before: Neighbour | None
    after: Neighbour | None


@dataclass(frozen=True)
class Holes:
    """The answer of ``heap holes``, largest first. The sums count all holes of at least ``minimum`` bytes, even if rows
    were cut.

    ``largest_hole``: the size of the largest hole, also if it is smaller than ``minimum``; None if there is no hole, or
    if it was not searched for.
    """

    sums: ClassVar[tuple[str, ...]] = ("bytes", "resident")
    rows: list[Hole]
    count: int
    bytes: int
    resident: int | None
    minimum: int = 0
    fit: Fit | None = None
    reasons: list[str] = field(default_factory=list)
    largest_hole: int | None = None

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``content`` of a format 1 file with today's key names."""
        return renamed_keys(content, {"holes": "rows", "why": "reasons"})


def holes(
    heap: Heap,
    minimum: int = 1 << 20,
    top: int | None = None,
    request: int | None = None,
    with_largest: bool = False,
) -> Holes:
    """Return the first ``top`` holes of at least ``minimum`` bytes, largest first.

    ``with_largest``: if there are none, search for the largest hole, which reads the heap some more times. With
    ``request``, also return whether a request of that many bytes would fit. Raises Unsupported if malloc is unknown,
    and UsageError for a request that malloc refuses.
    """
    found = bare_holes(heap, minimum)
    residents = [hole.resident for hole in found]
    resident = None if None in residents or heap.target.pages is None else sum(r or 0 for r in residents)
    fitted = None if request is None else fit(heap, request)
    shown = _named(heap, found if top is None else found[:top])
    having = {hole.allocator for hole in found}
    why: list[str] = [Sentence(allocator.why_holes_stay) for allocator in heap.allocators if allocator.name in having]
    size = sum(hole.size for hole in found)
    largest = found[0].size if found else _largest(heap, minimum) if with_largest else None
    return Holes(shown, len(found), size, resident, minimum, fitted, why, largest)


def bare_holes(heap: Heap, minimum: int) -> list[Hole]:
    """Return the holes of at least ``minimum`` bytes, largest first, without descriptions of their neighbours.

    Raises Unsupported if malloc is unknown.
    """
    heap.require_malloc()
    found = [_hole(heap, allocator, row) for allocator in heap.allocators for row in allocator.holes(minimum)]
    return sorted(found, key=lambda hole: (-hole.size, hole.address))


def _largest(heap: Heap, minimum: int) -> int | None:
    """Return the size of the largest hole, of less than ``minimum`` bytes; None if there is no hole."""
    found: list[Hole] = []
    # A list of all holes may be very long, so the minimum is lowered step by step.
    while not found and minimum > 1:
        minimum >>= STEP
        found = bare_holes(heap, max(minimum, 1))
    return found[0].size if found else None


def with_paths(heap: Heap, answer: Holes, listed: Sequence[Hole]) -> Holes:
    """Return the answer with the paths to the blocks next to the holes in ``listed``. All references are read."""
    found = ways(heap, beside(listed))
    wanted = {hole.address for hole in listed}
    named = [
        _changed(hole, lambda one: replace(one, path=found.get(one.address))) if hole.address in wanted else hole
        for hole in answer.rows
    ]
    return replace(answer, rows=named)


def with_makers(answer: Holes, made: Mapping[int, AllocatingCall]) -> Holes:
    """Return the answer with the recorded calls that allocated the blocks next to the holes.

    ``made``: these calls by the addresses of the blocks.
    """
    named = [_changed(hole, lambda one: replace(one, made=made.get(one.address))) for hole in answer.rows]
    return replace(answer, rows=named)


def beside(listed: Sequence[Hole]) -> list[int]:
    """Return the addresses of the blocks next to these holes."""
    return [one.address for hole in listed for one in (hole.before, hole.after) if one is not None]


def _changed(hole: Hole, change: Callable[[Neighbour], Neighbour]) -> Hole:
    before, after = (None if one is None else change(one) for one in (hole.before, hole.after))
    return replace(hole, before=before, after=after)


def _hole(heap: Heap, allocator: Allocator, row: HoleRow) -> Hole:
    around = [_beside(block) for block in (row.before, row.after)]
    resident = _resident(heap, row.start, row.end)
    return Hole(row.address, row.end - row.start, resident, row.arena, allocator.name, *around)


def _beside(block: _native.Block | None) -> Neighbour | None:
    return None if block is None else Neighbour(block.address, block.size, block.state)


def _resident(heap: Heap, start: int, end: int) -> int | None:
    """Return the bytes of the whole resident pages inside [start, end), which could be returned; None if unknown."""
    machine = heap.target.machine
    if heap.target.pages is None:
        return None
    first, last = machine.page_up(start), machine.page_down(end)
    return heap.target.pages.count(first, last).resident if first < last else 0


def _named(heap: Heap, found: list[Hole]) -> list[Hole]:
    """Return the holes with descriptions of the blocks in use next to them."""
    blocks = [
        (neighbour.address, neighbour.size)
        for hole in found
        for neighbour in (hole.before, hole.after)
        if neighbour is not None and neighbour.what == "used"
    ]
    words = describe_blocks(heap, blocks) if blocks else {}

    def name(neighbour: Neighbour) -> Neighbour:
        found = words.get(neighbour.address)
        return neighbour if found is None else replace(neighbour, what=str(found), block_kind=found.kind)

    return [_changed(hole, name) for hole in found]
