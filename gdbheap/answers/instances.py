"""List the objects of Python types one by one."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import ClassVar

from gdbheap.contents.python.text.repr import BRIEF
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap

MAX_TEXTS = 10_000
ORDERS = ("together", "bytes", "buffers", "type", "address")


@dataclass  # not frozen: there may be millions of rows, and making a frozen one takes three times as long
class Instance:
    """A live object.

    ``text``: a short text of the object; None if the text would only repeat the type, or if the row comes after the
    first MAX_TEXTS rows.
    """

    address: int
    type: str
    size: int
    buffers: int
    text: str | None


@dataclass(frozen=True)
class Instances:
    """The answer of ``heap pyobjects --list``. The sums count all matching objects, even if rows were cut."""

    sums: ClassVar[tuple[str, ...]] = ("own", "buffers")
    rows: list[Instance]
    count: int
    own: int
    buffers: int


def instances(heap: Heap, pattern: str | None, order: str = "together", top: int | None = None) -> Instances:
    """Return the first ``top`` live objects of types that match ``pattern`` (None: all types), by one of ORDERS.

    Raises NotAPython or Unsupported.
    """
    objects, census = heap.python.objects, heap.python.census
    names = {row.address: objects.names.name(row.address) for row in census.rows}
    matching = sorted((name, kind) for kind, name in names.items() if pattern is None or fnmatchcase(name, pattern))
    kinds = {kind: place for place, (_name, kind) in enumerate(matching)}
    listed = objects.instances(kinds, set(census.contested), order, top, heap.python.classifying)
    found = [Instance(row.address, names[row.type_address], row.size, row.buffers, None) for row in listed.rows]
    for instance in found[:MAX_TEXTS]:
        instance.text = objects.repr.text(instance.address, BRIEF)
    return Instances(found, listed.count, listed.bytes, listed.buffers)
