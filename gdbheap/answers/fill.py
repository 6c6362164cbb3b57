"""Count how full the containers of Python are."""

from __future__ import annotations

from fnmatch import fnmatchcase

from gdbheap import _native
from gdbheap.contents.python.objects.hash_tables import tables_of
from gdbheap.contents.python.objects.slack import growing_of
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap


@dataclass(frozen=True)
class FillRow:
    """The containers of one type.

    ``sharing``: the number of dicts without a table of their own, because they share their keys. ``items``: the number
    of items in all containers. ``room``: the number of items that the containers could hold. ``tenths``: for each tenth
    of the scale from 0 % to 100 % full, the number of containers in it.
    """

    type: str
    count: int
    empty: int
    sharing: int
    items: int
    room: int
    tenths: list[int]


@dataclass(frozen=True)
class Fills:
    """The answer of ``heap pyobjects --by=fill``: a row for each container type."""

    rows: list[FillRow]


def fills(heap: Heap, pattern: str | None) -> Fills:
    """Return a row for each of the types list, bytearray, dict and set whose name matches ``pattern`` (None: all of
    them).

    Objects of subclasses are not counted. Raises NotAPython or Unsupported.
    """
    objects, census = heap.python.objects, heap.python.census
    growing, tables = growing_of(objects.release), tables_of(objects.release)
    names = [one.name for one in growing] + [one.name for one in tables]
    wanted = [name for name in names if pattern is None or fnmatchcase(name, pattern)]
    types = {row.address: objects.names.name(row.address) for row in census.rows}
    kinds = {address: names.index(name) for address, name in types.items() if name in wanted}
    found = _native.count_fill(
        objects.heaps, objects.layout, kinds, growing, tables, set(census.contested), heap.python.classifying
    )
    rows = [
        FillRow(name, row.count, row.empty, row.shared, row.used, row.room, list(row.tenths))
        for name, row in zip(names, found)
        if name in wanted and row.count
    ]
    return Fills(sorted(rows, key=lambda row: (row.items - row.room, row.type)))
