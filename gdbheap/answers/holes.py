"""List the holes of the heap: where free memory is not returned to the kernel, and which blocks pin it.

A hole is a maximal run of free bytes among an allocator's blocks. The free end of a heap that grows there is not a
hole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from gdbheap import _native
from gdbheap.allocators.allocator import Allocator, HoleRow
from gdbheap.answers.accounting.describing import BlockKind, describe_blocks
from gdbheap.answers.accounting.paths import ways
from gdbheap.answers.fit import Fit, fit
from gdbheap.documents import renamed_keys
from gdbheap.heap import Heap
from gdbheap.stacks import Made
from gdbheap.text import Sentence


@dataclass(frozen=True)
class Neighbour:
    """The block before or after a hole."""

    address: int
    size: int
    what: str
    path: str | None = None
    block_kind: BlockKind | None = None
    made: Made | None = None

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``content`` of a format 1 file with today's key names."""
        return renamed_keys(content, {"kind": "block_kind"})


@dataclass(frozen=True)
class Hole:
    """One hole. Its address is what malloc would return for its first chunk."""

    address: int
    size: int
    resident: int | None
    arena: int | None
    allocator: str
    before: Neighbour | None
    after: Neighbour | None


@dataclass(frozen=True)
class Holes:
    """The answer of ``heap holes``, largest first. The sums cover all matching holes, also when the list is cut."""

    sums: ClassVar[tuple[str, ...]] = ("bytes", "resident")
    rows: list[Hole]
    count: int
    bytes: int
    resident: int | None
    minimum: int = 0
    fit: Fit | None = None
    reasons: list[str] = field(default_factory=list)

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``content`` of a format 1 file, where lists had the names of their rows."""
        return renamed_keys(content, {"holes": "rows", "why": "reasons"})


def holes(heap: Heap, minimum: int = 1 << 20, top: int | None = None, request: int | None = None) -> Holes:
    """Return every hole of at least ``minimum`` bytes, and whether ``request`` bytes would fit.

    Raises Unsupported if malloc is unknown, UsageError for a request that malloc refuses.
    """
    found = bare_holes(heap, minimum)
    residents = [hole.resident for hole in found]
    resident = None if None in residents or heap.target.pages is None else sum(r or 0 for r in residents)
    fitted = None if request is None else fit(heap, request)
    shown = _named(heap, found if top is None else found[:top])
    having = {hole.allocator for hole in found}
    why: list[str] = [Sentence(allocator.why_holes_stay) for allocator in heap.allocators if allocator.name in having]
    return Holes(shown, len(found), sum(hole.size for hole in found), resident, minimum, fitted, why)


def bare_holes(heap: Heap, minimum: int) -> list[Hole]:
    """Return the holes of at least ``minimum`` bytes, largest first, without descriptions of their neighbours.

    Raises Unsupported if malloc is unknown.
    """
    heap.require_malloc()
    found = [_hole(heap, allocator, row) for allocator in heap.allocators for row in allocator.holes(minimum)]
    return sorted(found, key=lambda hole: (-hole.size, hole.address))


def with_paths(heap: Heap, answer: Holes, listed: Sequence[Hole]) -> Holes:
    """Return the answer with paths to the neighbours of the holes in ``listed``. Reads all references."""
    found = ways(heap, beside(listed))
    wanted = {hole.address for hole in listed}
    named = [
        _changed(hole, lambda one: replace(one, path=found.get(one.address))) if hole.address in wanted else hole
        for hole in answer.rows
    ]
    return replace(answer, rows=named)


def with_makers(answer: Holes, made: Mapping[int, Made]) -> Holes:
    """Return the answer with the recorded calls that allocated the neighbours, by the neighbours' addresses."""
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
    """Return the bytes of whole resident pages inside [start, end), which could be returned; None if unknown."""
    machine = heap.target.machine
    if heap.target.pages is None:
        return None
    first, last = machine.page_up(start), machine.page_down(end)
    return heap.target.pages.count(first, last).resident if first < last else 0


def _named(heap: Heap, found: list[Hole]) -> list[Hole]:
    """Return the holes with descriptions of their neighbours in use."""
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
