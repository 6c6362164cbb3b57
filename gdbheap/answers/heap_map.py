"""The picture of the heap: each stretch of address space in cells of one size, and whose the bytes of each cell are.

The cells are those of ``partition``, so that what is drawn and what is not add up to the lines of the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gdbheap.answers.partition import ALLOCATORS, Sum, Sums, partition, total
from gdbheap.errors import GdbheapError, UsageError
from gdbheap.heap import Heap
from gdbheap.target.ranges import PAGE_SIZE, Ranges, joined, subtract

CELLS = 1200
MOST_CELLS = 1 << 20
# Of other memory, gaps without any page that are longer are left out: terabytes may be reserved and never touched.
LONGEST_GAP = 32 << 20


@dataclass(frozen=True)
class Part:
    """What one line of the ledger has in a cell, in bytes; ``pages`` and ``resident`` as in the ledger."""

    id: str
    virtual: int
    pages: int
    resident: int | None


@dataclass(frozen=True)
class Cell:
    """A stretch of address space, [start, end), and its parts."""

    start: int
    end: int
    parts: list[Part]


@dataclass(frozen=True)
class Group:
    """One stretch that is drawn: [start, end), whole pages. ``kind``: "glibc", "mmapped", "pymalloc", "mimalloc" or
    "other"; ``arena`` is of glibc's arenas, else None; ``resident`` None where it is not known."""

    name: str
    kind: str
    arena: int | None
    start: int
    end: int
    resident: int | None
    cells: list[Cell]


@dataclass(frozen=True)
class HeapMap:
    """The answer of ``heap map``: the bytes of a cell, what is drawn, and what is not (files, stacks, other memory
    without pages)."""

    cell: int
    groups: list[Group]
    rest: list[Part]


@dataclass(frozen=True)
class _Stretch:
    """A group before it is divided."""

    start: int
    end: int
    name: str
    kind: str
    arena: int | None = None


def heap_map(heap: Heap, cell: int = 0, cells: int = CELLS) -> HeapMap:
    """The map in cells of ``cell`` bytes, rounded up to a page; 0: the smallest power of two that takes no more
    than about ``cells`` of them. Raises UsageError when it would take more than a million."""
    stretches = list(_whole(_stretches(heap)))
    size = -(-cell // PAGE_SIZE) * PAGE_SIZE or _size_for(stretches, cells)
    needed = sum(_count(stretch, size) for stretch in stretches)
    if needed > MOST_CELLS:
        raise UsageError(f"{needed:,} cells of {size:,} bytes are too many: take a larger --cell")
    places = [(at, stretch) for stretch in stretches for at in range(stretch.start, stretch.end, size)]
    cuts, drawn = _cuts(places, size)
    sums = partition(heap, cuts)
    found: dict[int, list[Cell]] = {stretch.start: [] for stretch in stretches}
    rest: Sums = {}
    known = heap.target.pages is not None
    for index, cell_sums in enumerate(sums):
        place = drawn.get(index)
        if place is None:
            rest = {owner: rest.get(owner, Sum()) + cell_sums.get(owner, Sum()) for owner in {**rest, **cell_sums}}
        else:
            at, stretch = place
            found[stretch.start].append(Cell(at, min(at + size, stretch.end), _parts(cell_sums, known)))
    groups = [_group(stretch, found[stretch.start], known) for stretch in stretches]
    return HeapMap(size, groups, _parts(rest, known))


def _cuts(places: list[tuple[int, _Stretch]], size: int) -> tuple[list[int], dict[int, tuple[int, _Stretch]]]:
    """Where cells begin and end, and which of the cells between them are drawn: by their number, from 1 on."""
    cuts: list[int] = []
    drawn = {}
    for at, stretch in places:
        if not cuts or cuts[-1] != at:
            cuts.append(at)
        drawn[len(cuts)] = (at, stretch)
        cuts.append(min(at + size, stretch.end))
    return cuts, drawn


def _group(stretch: _Stretch, cells: list[Cell], known: bool) -> Group:
    resident = sum(part.resident or 0 for cell in cells for part in cell.parts) if known else None
    return Group(stretch.name, stretch.kind, stretch.arena, stretch.start, stretch.end, resident, cells)


def _parts(sums: Sums, known: bool) -> list[Part]:
    """By the lines of the ledger, those of all arenas together."""
    lines = sorted({_line_of(owner) for owner in sums})
    found = [(line, total(sums, line)) for line in lines]
    return [Part(line, part.virtual, part.pages, part.resident if known else None) for line, part in found]


def _line_of(owner: str) -> str:
    """Of allocators the parts have lines, of all else the whole."""
    first, *rest = owner.split(".")
    return ".".join([first, *rest[: first in ALLOCATORS]])


def _count(stretch: _Stretch, size: int) -> int:
    return -(-(stretch.end - stretch.start) // size)


def _size_for(stretches: list[_Stretch], cells: int) -> int:
    size = PAGE_SIZE
    while sum(_count(stretch, size) for stretch in stretches) > max(cells, 2 * len(stretches)):
        size *= 2
    return size


def _whole(stretches: list[_Stretch]) -> Iterator[_Stretch]:
    """By address, in whole pages; a page that two touch is the first one's."""
    at = 0
    for stretch in sorted(stretches, key=lambda stretch: stretch.start):
        start, end = max(at, stretch.start // PAGE_SIZE * PAGE_SIZE), -(-stretch.end // PAGE_SIZE) * PAGE_SIZE
        if start < end:
            yield _Stretch(start, end, stretch.name, stretch.kind, stretch.arena)
            at = end


def _stretches(heap: Heap) -> list[_Stretch]:
    if heap.target.refusal is not None:
        raise heap.target.refusal
    try:
        found = [
            _Stretch(part.start, part.end, f"arena {part.arena}" if part.arena else "main arena", "glibc", part.arena)
            for part in heap.walked.heaps
        ]
        mapped = joined(sorted((chunk.base, chunk.end) for chunk in heap.mapped))
        unowned = subtract(heap.unowned_ranges(), mapped)
    except GdbheapError as error:
        heap.note(f"{error}: malloc's memory is drawn as other memory")
        found, mapped, unowned = [], [], _anonymous(heap)
    python = heap.python_or_none
    pools = joined(sorted(python.ranges())) if python is not None else []
    found += [_Stretch(start, end, "chunks with their own mapping", "mmapped") for start, end in mapped]
    found += [_Stretch(start, end, "pymalloc's arenas", "pymalloc") for start, end in pools]
    found += [_Stretch(start, end, "mimalloc's segments", "mimalloc") for start, end in _segments(heap)]
    return found + [_Stretch(start, end, "other memory", "other") for start, end in _touched(heap, unowned)]


def _segments(heap: Heap) -> Ranges:
    """Those of CPython's mimalloc, each by itself: what is reserved beside them is not drawn."""
    return sorted((segment.start, segment.end) for segment in heap.mimalloc.segments) if heap.mimalloc else []


def _anonymous(heap: Heap) -> Ranges:
    python = heap.python_or_none
    memory = [(m.start, m.end) for m in heap.target.mappings if m.anonymous and m.private and m.writable]
    taken = [*(python.ranges() if python is not None else []), *(heap.mimalloc.ranges() if heap.mimalloc else [])]
    return subtract(memory, sorted(taken))


def _touched(heap: Heap, ranges: Ranges) -> Ranges:
    """The parts of ``ranges`` that have pages, without long gaps between them; all of them where that is not known."""
    pages = heap.target.pages
    if pages is None:
        return ranges
    found: Ranges = []
    for start, end in ranges:
        first = len(found)
        for low, high, _state in pages.runs(start, end):
            if len(found) > first and low - found[-1][1] <= LONGEST_GAP:
                found[-1] = (found[-1][0], high)
            else:
                found.append((low, high))
    return found
