"""Find the types of used blocks in ranges of the address space, with their bytes."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap import _native
from gdbheap.answers.heap_map import HeapMap
from gdbheap.dataclass import dataclass
from gdbheap.errors import Unsupported
from gdbheap.heap import Heap
from gdbheap.snapshots.blocks import list_blocks

__all__ = ["CELLS", "TypePlaces", "TypeShare", "places", "places_on"]

Stretch = tuple[int, int]
CELLS = 1 << 15
"""The approximate number of cells of a map. If there are many ranges, the map has up to two cells for each range.

At this number, a cell is small enough to show types, and an HTML page can still contain all cells.
"""
# If there are more blocks, they are not listed one by one, because each listed block takes about ten bytes meanwhile.
MAX_BLOCKS = 64_000_000


@dataclass(frozen=True)
class TypeShare:
    """Bytes of used blocks in one of the given ranges.

    ``place``: the number of the range.
    ``type``: the type of the living object in each block, None for blocks without an object, such as buffers.
    ``count``: how many of the blocks begin in the range.
    ``resident``: how many of the ``bytes`` are resident, None if unknown.
    """

    place: int
    type: str | None
    count: int
    bytes: int
    resident: int | None


@dataclass(frozen=True)
class TypePlaces:
    """The shares of types in ranges, in the order of the ranges. Within a range, the largest share comes first."""

    shares: list[TypeShare]


def places(heap: Heap, stretches: Sequence[Stretch]) -> TypePlaces:
    """Return the types of the blocks in ``stretches``: ascending ranges that do not overlap.

    Raises Unsupported if there are too many blocks, or if the ranges overlap.
    """
    if heap.used_blocks > MAX_BLOCKS:
        raise Unsupported(f"more than {MAX_BLOCKS:,} blocks are in use, too many to list one by one")
    table, columns = list_blocks(heap)
    found: dict[tuple[int, int], tuple[int, int]] = {}
    there: dict[tuple[int, int], int] = {}
    try:
        for row in columns.shares([(start, end, place) for place, (start, end) in enumerate(stretches)]):
            found[row.label, row.kind] = row.count, row.bytes
        for row in columns.shares(_resident(heap, stretches)):
            there[row.label, row.kind] = row.bytes
    except ValueError as error:
        raise Unsupported(f"the types at each place are unknown: {error}") from None
    known = heap.target.pages is not None
    shares = [
        TypeShare(place, _name(table.types, kind), *sums, there.get((place, kind), 0) if known else None)
        for (place, kind), sums in found.items()
    ]
    return TypePlaces(sorted(shares, key=lambda share: (share.place, -share.bytes, share.type or "")))


def places_on(heap: Heap, drawn: HeapMap) -> TypePlaces:
    """Return the types in the cells of a map, in the order of its groups. Raises the errors of ``places``."""
    return places(heap, [(cell.start, cell.end) for group in drawn.rows for cell in group.cells])


def _name(types: Sequence[str], kind: int) -> str | None:
    return types[kind - 1] if 0 < kind <= len(types) else None


def _resident(heap: Heap, stretches: Sequence[Stretch]) -> list[tuple[int, int, int]]:
    """Return (start, end, index of the range) of the resident parts of the ranges; empty if residency is unknown."""
    pages = heap.target.pages
    if pages is None:
        return []
    return [
        (run.start, run.end, place)
        for place, (start, end) in enumerate(stretches)
        for run in pages.runs(start, end)
        if run.state == _native.PRESENT
    ]
