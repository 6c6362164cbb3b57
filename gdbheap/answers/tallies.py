"""Group the Python objects by block size, by length, or by module."""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase
from typing import ClassVar

from gdbheap import _native
from gdbheap.answers.accounting.absent_types import absent_of
from gdbheap.contents.python.objects.comparable import length_at
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.heap import Heap

SIZE, LENGTH, MODULE = "size", "length", "module"
BY_BLOCK = -1


@dataclass(frozen=True)
class TallyRow:
    """The objects with the same key: a size, a length or a module."""

    key: int | str
    count: int
    own: int


@dataclass(frozen=True)
class Tallies:
    """The answer of ``heap pyobjects`` with ``--by=size``, ``--by=length`` or ``--by=module``. ``tally_of`` names the
    grouping.

    The sums count all rows, even if rows were cut.
    """

    sums: ClassVar[tuple[str, ...]] = ("count", "own", "absent")
    tally_of: str
    rows: list[TallyRow]
    count: int
    own: int
    absent: int = 0
    matching: int | None = None


def tallies(heap: Heap, by: str, pattern: str | None, by_count: bool = False, top: int | None = None) -> Tallies:
    """Return the first ``top`` groups of live objects of the types that match ``pattern`` (None: all types).

    ``by``: group the objects by the size of their block, by len(), or by the module of their type. ``by_count``: the
    groups with the most objects come first, otherwise those with the most bytes. Objects without a length are in no
    group of lengths. Raises NotAPython, Unsupported, or UsageError if no matching type has a length.
    """
    rows = _by_module(heap, pattern) if by == MODULE else _by_number(heap, by, pattern)
    rows.sort(key=lambda row: (-(row.count if by_count else row.own), str(row.key)))
    count, size = sum(row.count for row in rows), sum(row.own for row in rows)
    return Tallies(by, rows[:top], count, size, absent_of(heap, pattern), len(rows))


def _by_module(heap: Heap, pattern: str | None) -> list[TallyRow]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in heap.python.census.rows:
        names = heap.python.objects.names
        if pattern is None or fnmatchcase(names.name(row.address), pattern):
            total = sums[names.module(row.address)]
            total[0] += row.live.count
            total[1] += row.live.bytes
    return [TallyRow(module, count, size) for module, (count, size) in sums.items() if count]


def _by_number(heap: Heap, by: str, pattern: str | None) -> list[TallyRow]:
    objects, census = heap.python.objects, heap.python.census
    kinds: dict[int, int] = {}
    for row in census.rows:
        name = objects.names.name(row.address)
        at = BY_BLOCK if by == SIZE else length_at(objects.release, name)
        if at is not None and (pattern is None or fnmatchcase(name, pattern)):
            kinds[row.address] = at
    if by == LENGTH and not kinds:
        raise UsageError("heap pyobjects: --by=length is for str, bytes, bytearray, list, tuple, dict, set and deque")
    found = _native.tally_objects(objects.heaps, objects.layout, kinds, set(census.contested), heap.python.classifying)
    return [TallyRow(row.key, row.count, row.bytes) for row in found]
