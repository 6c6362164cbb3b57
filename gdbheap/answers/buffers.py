"""Count the buffers that Python objects own, by type and by the field that owns them."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import ClassVar

from gdbheap.answers.accounting.absent_types import absent_kinds
from gdbheap.contents.python.objects.owned import REACHED, ROLES
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap


@dataclass(frozen=True)
class Buffer:
    """The blocks that objects of one type own through one kind of field.

    ``role``: the use of the blocks. ``is_reached``: no known field names the blocks; they count as owned because only
    the objects reach them. ``absent``: bytes that are not resident.
    """

    type: str
    role: str
    count: int
    bytes: int
    is_reached: bool
    absent: int = 0


@dataclass(frozen=True)
class Buffers:
    """The answer of ``heap pyobjects --buffers``. The sums count all matching rows, even if rows were cut."""

    sums: ClassVar[tuple[str, ...]] = ("count", "bytes", "reached", "absent")
    rows: list[Buffer]
    matching: int
    count: int
    bytes: int
    reached: int
    absent: int = 0


ORDERS: dict[str, Callable[[Buffer], tuple[object, ...]]] = {
    "bytes": lambda row: (-row.bytes, row.type, row.role),
    "count": lambda row: (-row.count, row.type, row.role),
    "type": lambda row: (row.type, row.role),
    "role": lambda row: (row.role, -row.bytes, row.type),
}


def buffers(heap: Heap, pattern: str | None = None, order: str = "bytes", top: int | None = None) -> Buffers:
    """Return a row for each type that matches ``pattern`` and each role of its buffers.

    The rows are sorted by one of ORDERS and cut at ``top``. Raises NotAPython or Unsupported.
    """
    sums: dict[tuple[str, int], list[int]] = {}
    for of_type in heap.python.owned_census.rows:
        for owned in of_type.owned:
            row = sums.setdefault((heap.python.objects.names.name(of_type.address), owned.role), [0, 0])
            row[0], row[1] = row[0] + owned.count, row[1] + owned.bytes
    absent = absent_kinds(heap)
    rows = [
        Buffer(name, ROLES[role], count, size, role == REACHED, absent[ROLES[role], name])
        for (name, role), (count, size) in sums.items()
    ]
    rows = sorted((row for row in rows if pattern is None or fnmatchcase(row.type, pattern)), key=ORDERS[order])
    reached = sum(row.bytes for row in rows if row.is_reached)
    count, size = (sum(getattr(row, key) for row in rows) for key in ("count", "bytes"))
    return Buffers(rows[:top], len(rows), count, size, reached, sum(row.absent for row in rows))
