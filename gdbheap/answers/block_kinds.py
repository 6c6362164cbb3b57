"""Count the blocks in use of C code by kind."""

from __future__ import annotations

from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap


@dataclass(frozen=True)
class KindRow:
    """Blocks in use of one kind. ``type``: a class, a container's elements, or a library's purpose as text.

    ``capacity``: the bytes that the blocks of containers can hold. ``occupied``: how many of these bytes hold items.
    ``capacity`` and ``occupied`` are None if they are unknown, or if the blocks belong to no containers.
    """

    type: str
    count: int
    bytes: int
    capacity: int | None = None
    occupied: int | None = None


@dataclass(frozen=True)
class Tally:
    """A number of blocks (``count``), and their bytes with headers."""

    count: int
    bytes: int


@dataclass(frozen=True)
class BlockKinds:
    """The answer of ``heap chunks --by=type``: a row for each kind, the unclassified blocks, and the total.

    The sums count all blocks, even if rows were cut. ``beside_python``: whether the program also has Python objects.
    """

    rows: list[KindRow]
    count: int
    unclassified: Tally
    total: Tally
    beside_python: bool = False


def block_kinds(heap: Heap, by_count: bool = False, top: int | None = None) -> BlockKinds:
    """Return the first ``top`` kinds of blocks, those with the most bytes first.

    ``by_count``: those with the most blocks first. Raises Unsupported if no allocator is known.
    """
    structures = heap.structures
    sums: dict[str, tuple[int, int]] = {}
    # Kinds with different vtables may have the same text.
    for each in structures.sums:
        known = sums.get(each.kind.text, (0, 0))
        sums[each.kind.text] = known[0] + each.count, known[1] + each.bytes
    rooms: dict[str, tuple[int, int]] = {}
    for room in structures.rooms:
        capacity, used = rooms.get(room.kind.text, (0, 0))
        rooms[room.kind.text] = capacity + room.capacity, used + room.used
    rows = [KindRow(text, *counted, *rooms.get(text, (None, None))) for text, counted in sums.items()]
    every = structures.native.all()
    count, size = sum(row.count for row in rows), sum(row.bytes for row in rows)
    rows.sort(key=lambda row: (-row.count if by_count else -row.bytes, row.type))
    return BlockKinds(
        rows[:top], len(rows), Tally(every.count - count, every.bytes - size), Tally(every.count, every.bytes),
        heap.python.objects_or_none is not None,
    )  # fmt: skip
