"""List every block of a snapshot, and find the blocks that appeared or disappeared between two snapshots.

A snapshot stores blocks as columns (native/core/src/history/columns.rs), and each column as an entry of its zip. A
table has the allocators and types of the blocks. Two blocks count as one if they have the same address, size and type
in both snapshots. In fact they may be different blocks, because allocators hand out a freed block again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from gdbheap import _native
from gdbheap.allocators.allocator import WalkedBlocks
from gdbheap.answers.holders import Holder
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.heap import Heap

__all__ = [
    "COLUMNS",
    "HOLDERS",
    "OFFSETS",
    "WIDTHS",
    "BlockChange",
    "BlockTable",
    "HeldBlocks",
    "changed_blocks",
    "columns_of",
    "list_blocks",
]

COLUMNS = ("addresses", "far", "sizes", "large", "kinds")
HOLDERS, OFFSETS = "holders", "offsets"
# The bytes of each column for each block. The other columns have eight bytes for each of a few blocks.
WIDTHS = {"addresses": 4, "sizes": 4, "kinds": 2, HOLDERS: 2, OFFSETS: 1}
MAX_SAMPLES = 10
MAX_HOLDERS = 5
# The number of a holder that native/core/src/history/columns.rs writes for unreachable blocks.
LOST = (1 << 16) - 1
UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class BlockTable:
    """The meanings of the numbers in the columns.

    ``allocators``: the allocators in the order of their blocks.
    ``counts``: how many blocks each allocator has handed out.
    ``types``: the names for the numbers in the column ``kinds``, which count from 1.
    ``holders``: the names for the numbers in the column ``holders``, which count from 1. None if the graph of
    references was not built.
    """

    allocators: list[str]
    counts: list[int]
    types: list[str] = field(default_factory=list)
    holders: list[Holder] | None = None


@dataclass(frozen=True)
class HeldBlocks:
    """The number of new blocks that one holder keeps alive.

    ``type``: the holder's type; None if no single holder is known, "unreachable" for unreachable blocks.
    """

    type: str | None
    path: str | None
    count: int


@dataclass(frozen=True)
class BlockChange:
    """Blocks of one size and type, and how many of them appeared and disappeared.

    ``type``: the type of the living object in each block, None for blocks without an object. ``size``: the bytes of a
    block, including the allocator's overhead. ``new_holders``: at most MAX_HOLDERS holders of the new blocks.
    """

    type: str | None
    size: int
    still_there: int
    new: int
    gone: int
    addresses: list[int]
    new_holders: list[HeldBlocks] | None = None


def list_blocks(heap: Heap) -> tuple[BlockTable, _native.BlockColumns]:
    """Return all used blocks of all allocators as columns, and the table with the meanings of the numbers in them."""
    names, stores = _stores(heap)
    heaps, objects = _native.Heaps(heap.target.space, stores), heap.python.objects_or_none
    layout = objects.layout if objects is not None else None
    columns = _native.list_blocks(heaps, layout, heap.labelled("listing blocks"))
    types = [objects.names.name(address) for address in columns.types] if objects is not None else []
    return BlockTable(names, columns.counts, types), columns


def _stores(heap: Heap) -> tuple[list[str], list[_native.BlockStore]]:
    """Return the names of the allocators, and their stores of blocks in the same order. Python's own allocator comes
    first.

    An allocator with several stores is named once for each of them.
    """
    found: list[tuple[int, str, _native.BlockStore]] = []
    for allocator in heap.allocators:
        given = WalkedBlocks()
        allocator.give(given)
        for rank, stores in enumerate((given.own.values(), given.general.values(), given.single)):
            found += [(rank, allocator.name, store) for store in stores]
    found.sort(key=lambda row: row[0])
    return [name for _rank, name, _store in found], [store for _rank, _name, store in found]


def columns_of(table: BlockTable, columns: Sequence[bytes]) -> _native.BlockColumns:
    """Return the columns that were read from a file. ``columns``: in the order of COLUMNS, then HOLDERS and OFFSETS.

    Raises ValueError if the columns contradict each other or the table.
    """
    return _native.BlockColumns(table.counts, columns, len(table.types))


def changed_blocks(
    before: tuple[BlockTable, _native.BlockColumns], after: tuple[BlockTable, _native.BlockColumns]
) -> list[BlockChange]:
    """Return the blocks that appeared or disappeared, counted by type and size, the most new bytes first.

    ``before``, ``after``: the blocks of the two snapshots. Raises UsageError if columns contradict each other.
    """
    names = [None, *dict.fromkeys([*before[0].types, *after[0].types])]
    numbers = {name: number for number, name in enumerate(names)}
    old, new = ([numbers[name] for name in table.types] for table, _columns in (before, after))
    try:
        found = _native.compare_blocks(before[1], old, after[1], new, MAX_SAMPLES)
    except ValueError as error:
        raise UsageError(f"the snapshot is damaged: {error}") from None
    holders = after[0].holders
    return [
        BlockChange(names[row.kind], row.size, row.kept, row.new, row.gone, some, _held(by, holders))
        for row, some, by in zip(found.rows, found.samples, found.holders)
    ]


def _held(counts: Sequence[tuple[int, int]], holders: Sequence[Holder] | None) -> list[HeldBlocks] | None:
    """Return the holders of the most new blocks; None if the holders are unknown.

    ``counts``: (number of the holder, number of new blocks). One holder may have several numbers, such as a module and
    its dict; their blocks are added up.
    """
    if holders is None:
        return None
    sums: dict[tuple[str | None, str | None], int] = {}
    for number, count in counts:
        who: tuple[str | None, str | None] = (None, None)
        if number == LOST:
            who = UNREACHABLE, None
        elif 0 < number <= len(holders):
            who = holders[number - 1].type, holders[number - 1].path
        sums[who] = sums.get(who, 0) + count
    rows = sorted(sums.items(), key=lambda item: -item[1])[:MAX_HOLDERS]
    return [HeldBlocks(kind, path, count) for (kind, path), count in rows]
