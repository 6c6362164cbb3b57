"""Every block of a look, and what came and went between two looks.

A snapshot has them as columns (native/core/src/history/columns.rs), each an entry of its zip; the table says whose they
are. A block is still there where one of the same size and type lies at its address: free lists hand the same place out
again, so that it may be its like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gdbheap import _native
from gdbheap.allocators.allocator import WalkedBlocks
from gdbheap.answers.holders import Holder
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
# Bytes for each block; the others have eight for each of a few.
WIDTHS = {"addresses": 4, "sizes": 4, "kinds": 2, HOLDERS: 2, OFFSETS: 1}
MAX_SAMPLES = 10
MAX_HOLDERS = 5
# As native/core/src/history/columns.rs writes it.
LOST = (1 << 16) - 1
UNREACHABLE = "unreachable"


@dataclass(frozen=True)
class BlockTable:
    """Which allocator's blocks come after one another, and how many each has handed out; the types that ``kinds``
    counts from 1 on, and the holders that ``holders`` does, None where the graph was not drawn."""

    allocators: list[str]
    counts: list[int]
    types: list[str] = field(default_factory=list)
    holders: list[Holder] | None = None


@dataclass(frozen=True)
class HeldBlocks:
    """How many new blocks one holder keeps alive; without one (``type`` None) no single one is known. ``type`` is
    "unreachable" for those to which nothing leads."""

    type: str | None
    path: str | None
    count: int


@dataclass(frozen=True)
class BlockChange:
    """Blocks of one size, with what the allocator needs, that hold a living object of ``type``, or none (None); at
    most MAX_HOLDERS who hold those that came."""

    type: str | None
    size: int
    still_there: int
    new: int
    gone: int
    addresses: list[int]
    new_holders: list[HeldBlocks] | None = None


def list_blocks(heap: Heap) -> tuple[BlockTable, _native.BlockColumns]:
    """All used blocks of all allocators."""
    names, stores = _stores(heap)
    heaps, objects = _native.Heaps(heap.target.space, stores), heap.python.objects_or_none
    layout = objects.layout if objects is not None else None
    columns = _native.list_blocks(heaps, layout, heap.labelled("listing blocks"))
    types = [objects.names.name(address) for address in columns.types] if objects is not None else []
    return BlockTable(names, columns.counts, types), columns


def _stores(heap: Heap) -> tuple[list[str], list[_native.Store]]:
    """What hands out blocks, Python's own first, with the name of its allocator."""
    found: list[tuple[int, str, _native.Store]] = []
    for allocator in heap.allocators:
        given = WalkedBlocks()
        allocator.give(given)
        for rank, stores in enumerate((given.own.values(), given.general.values(), given.single)):
            found += [(rank, allocator.name, store) for store in stores]
    found.sort(key=lambda row: row[0])
    return [name for _rank, name, _store in found], [store for _rank, _name, store in found]


def columns_of(table: BlockTable, columns: Sequence[bytes]) -> _native.BlockColumns:
    """Return what was read from a file, in the order of COLUMNS, and HOLDERS and OFFSETS last. Raises ValueError where
    they do not fit each other or the table."""
    return _native.BlockColumns(table.counts, columns, len(table.types))


def changed_blocks(
    before: tuple[BlockTable, _native.BlockColumns], after: tuple[BlockTable, _native.BlockColumns]
) -> list[BlockChange]:
    """By type and size, the most new bytes first. Raises UsageError where columns do not fit each other."""
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
    """Several numbers may stand for one holder: a module and its dict do."""
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
