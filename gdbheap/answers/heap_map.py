"""Map the heap: areas of the address space in cells of equal size, with the owners of each cell's bytes.

The cells come from ``partition``, so the drawn parts and the undrawn rest add up to the lines of the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator

from gdbheap.allocators.allocator import DrawnArea
from gdbheap.allocators.line_ids import LineId
from gdbheap.answers.accounting.partition import Sum, Sums, line_states, partition, total
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, UsageError
from gdbheap.heap import Heap
from gdbheap.machines.machine import Machine
from gdbheap.targets.ranges import Ranges

CELLS = 1200
MAX_CELLS = 1 << 20
# The longest gap without pages that is drawn in other memory; terabytes may be reserved and never touched.
MAX_GAP = 32 << 20


@dataclass(frozen=True)
class CellPart:
    """The bytes of one ledger line in a cell."""

    id: str
    virtual: int
    pages: int
    resident: int | None
    state: str | None = None


@dataclass(frozen=True)
class Cell:
    """A part [start, end) of the address space, and the ledger's lines that have bytes in it."""

    start: int
    end: int
    parts: list[CellPart]


@dataclass(frozen=True)
class MapGroup:
    """A drawn area [start, end), in whole pages. ``kind``: an allocator's name, "mmapped" or "other"."""

    name: str
    kind: str
    arena: int | None
    start: int
    end: int
    resident: int | None
    cells: list[Cell]
    huge: int | None = None


@dataclass(frozen=True)
class HeapMap:
    """The answer of ``heap map``: the drawn areas in cells of ``cell`` bytes, and the sums of memory that is not drawn.

    Files, stacks and address space without pages are not drawn."""

    cell: int
    rows: list[MapGroup]
    other_lines: list[CellPart]


def heap_map(heap: Heap, cell: int = 0, cells: int = CELLS) -> HeapMap:
    """Return the map in cells of ``cell`` bytes, rounded up to a page.

    If ``cell`` is 0, it is the smallest power of two with which about ``cells`` cells suffice. Raises UsageError if the
    map would have more than MAX_CELLS cells.
    """
    machine = heap.target.machine
    stretches = list(_whole(machine, _stretches(heap)))
    size = machine.page_up(cell) or _size_for(machine.page, stretches, cells)
    needed = sum(_count(stretch, size) for stretch in stretches)
    if needed > MAX_CELLS:
        raise UsageError(f"{needed:,} cells of {size:,} bytes are too many: take a larger --cell")
    places = [(at, stretch) for stretch in stretches for at in range(stretch.start, stretch.end, size)]
    cuts, drawn = _cuts(places, size)
    sums = partition(heap, cuts)
    found: dict[int, list[Cell]] = {stretch.start: [] for stretch in stretches}
    huge = dict.fromkeys(found, 0)
    rest: Sums = {}
    known, states = heap.target.pages is not None, line_states(heap.allocators)
    for index, cell_sums in enumerate(sums):
        place = drawn.get(index)
        if place is None:
            rest = {owner: rest.get(owner, Sum()) + cell_sums.get(owner, Sum()) for owner in {**rest, **cell_sums}}
        else:
            at, stretch = place
            huge[stretch.start] += sum(part.huge for part in cell_sums.values())
            found[stretch.start].append(Cell(at, min(at + size, stretch.end), _parts(cell_sums, states, known)))
    is_told = heap.target.pages is not None and heap.target.pages.knows_huge
    groups = [
        _group(stretch, found[stretch.start], known, huge[stretch.start] if is_told else None) for stretch in stretches
    ]
    return HeapMap(size, groups, _parts(rest, states, known))


def _cuts(places: list[tuple[int, DrawnArea]], size: int) -> tuple[list[int], dict[int, tuple[int, DrawnArea]]]:
    """Return the addresses where cells begin and end. Also return {number: (start, area)} of the drawn cells, numbered
    from 1."""
    cuts: list[int] = []
    drawn = {}
    for at, stretch in places:
        if not cuts or cuts[-1] != at:
            cuts.append(at)
        drawn[len(cuts)] = (at, stretch)
        cuts.append(min(at + size, stretch.end))
    return cuts, drawn


def _group(stretch: DrawnArea, cells: list[Cell], known: bool, huge: int | None) -> MapGroup:
    resident = sum(part.resident or 0 for cell in cells for part in cell.parts) if known else None
    return MapGroup(stretch.name, stretch.kind, stretch.arena, stretch.start, stretch.end, resident, cells, huge)


def _parts(sums: Sums, states: dict[LineId, str], known: bool) -> list[CellPart]:
    """Return the bytes of each ledger line that is drawn; lines of single arenas are summed. ``known``: whether
    residency is known.
    """
    found = [(line, total(sums, line)) for line in sorted({_line_of(owner, states) for owner in sums})]
    return [
        CellPart(line, part.virtual, part.pages, part.resident if known else None, states.get(line))
        for line, part in found
    ]


def _line_of(owner: LineId, states: dict[LineId, str]) -> LineId:
    """Return the line of the ledger that the map shows for an owner.

    For an allocator it is the line below the allocator's own line, for other memory the topmost line.
    """
    first, *rest = owner.split(".")
    return LineId(".".join([first, *rest[: owner in states]]))


def _count(stretch: DrawnArea, size: int) -> int:
    return -(-(stretch.end - stretch.start) // size)


def _size_for(page: int, stretches: list[DrawnArea], cells: int) -> int:
    size = page
    while sum(_count(stretch, size) for stretch in stretches) > max(cells, 2 * len(stretches)):
        size *= 2
    return size


def _whole(machine: Machine, stretches: list[DrawnArea]) -> Iterator[DrawnArea]:
    """Yield the areas by address, in whole pages. A page with bytes of two areas belongs to the first."""
    at = 0
    for stretch in sorted(stretches, key=lambda stretch: stretch.start):
        start, end = max(at, machine.page_down(stretch.start)), machine.page_up(stretch.end)
        if start < end:
            yield DrawnArea(start, end, stretch.name, stretch.kind, stretch.arena)
            at = end


def _stretches(heap: Heap) -> list[DrawnArea]:
    if heap.target.refusal is not None:
        raise heap.target.refusal
    try:
        heap.require_malloc()
    except GdbheapError as error:
        heap.note("malloc-drawn-as-other", error=str(error))
    found = [drawn for allocator in heap.allocators for drawn in allocator.drawn()]
    others = _touched(heap, heap.unwalked_ranges())
    return found + [DrawnArea(start, end, "other memory", "other") for start, end in others]


def _touched(heap: Heap, ranges: Ranges) -> Ranges:
    """Return the parts of ``ranges`` that have pages, joined across gaps of at most MAX_GAP bytes. If residency is
    unknown, return all of ``ranges``.
    """
    pages = heap.target.pages
    if pages is None:
        return ranges
    found: Ranges = []
    for start, end in ranges:
        first = len(found)
        for run in pages.runs(start, end):
            if len(found) > first and run.start - found[-1][1] <= MAX_GAP:
                found[-1] = (found[-1][0], run.end)
            else:
                found.append((run.start, run.end))
    return found
