"""How many objects of a type are there for each value of an attribute?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gdbheap.errors import Fault, Unsupported, UsageError
from gdbheap.heap import Heap
from gdbheap.python.memory import Pages
from gdbheap.python.repr import Limits
from gdbheap.python.values import KINDS

# Objects of these types are equal where their texts are, which are whole; others only to themselves.
WHOLE = Limits(length=1 << 16, value=1 << 16, items=1 << 10, depth=6, reads=4_000)
SHOWN = Limits(length=80, value=60, items=6, depth=3, reads=300)
MISSING = 0


@dataclass(frozen=True)
class Group:
    """Objects whose attribute has the same value: a short text of it (None where the attribute is not set), its type,
    how many objects, the bytes of their own blocks, and of the buffers that they own; ``address``: of the value."""

    value: str | None
    type: str | None
    count: int
    bytes: int
    buffers: int
    address: int | None


@dataclass(frozen=True)
class Groups:
    """The answer of ``heap pyobjects --type=GLOB --group=ATTRIBUTE``, the most numerous first; the sums are over
    all."""

    attribute: str
    groups: list[Group]
    count: int
    bytes: int
    buffers: int


def groups(heap: Heap, pattern: str | None, attribute: str) -> Groups:
    """Live objects of types whose names match ``pattern``, by the value of an attribute: in a slot, a dict, or values
    without one; not what a class has. Raises UsageError without a pattern, NotAPython, or Unsupported."""
    if pattern is None:
        raise UsageError("heap pyobjects: --group=ATTRIBUTE needs --type=GLOB: the objects that have the attribute")
    objects, census = heap.objects, heap.census()
    kinds = {
        row.address: 0
        for row in census.rows
        if row.live.count and fnmatchcase(objects.names.name(row.address), pattern)
    }
    rows = objects.instances(kinds, set(census.contested), "address", None, heap.classifying).rows
    reading = _Reading(heap, attribute)
    sums: dict[object, list[int]] = {}
    for row in rows:
        value = reading.value(row.address, row.type_address)
        total = sums.setdefault(reading.key(value), [value, 0, 0, 0])
        for place, more in enumerate((1, row.size, row.buffers), 1):
            total[place] += more
    found = [reading.group(*total) for total in sums.values()]
    found.sort(key=lambda group: (-group.count, -group.bytes, group.value or ""))
    return Groups(attribute, found, len(rows), sum(row.size for row in rows), sum(row.buffers for row in rows))


class _Reading:
    """Reads one attribute of many objects."""

    def __init__(self, heap: Heap, attribute: str) -> None:
        self._objects = heap.objects
        self._attribute = attribute
        self._memory = Pages(heap.target.space)
        self._readers: dict[int, Callable[[int], int]] = {}
        self._keys: dict[int, object] = {}
        self._contents = heap.disclosure.contents

    def value(self, address: int, kind: int) -> int:
        """The address of the attribute's value; 0 where it is not set or cannot be read."""
        try:
            if kind not in self._readers:
                attributes = self._objects.repr.attributes
                self._readers[kind] = attributes.reader(self._memory, address, kind, self._attribute)
            return self._readers[kind](address)
        except (Fault, OverflowError, Unsupported):
            return MISSING

    def key(self, value: int) -> object:
        """What is equal for equal values."""
        if value not in self._keys:
            self._keys[value] = self._read_key(value)
        return self._keys[value]

    def _read_key(self, value: int) -> object:
        name = self._objects.type_at(value) if value else ""
        if name not in KINDS:
            return value
        disclosure = self._objects.repr.disclosure
        # The text that is compared is not one that is shown.
        before, disclosure.contents = disclosure.contents, True
        try:
            text = self._objects.repr.text(value, WHOLE)
        finally:
            disclosure.contents = before
        return value if text is None else (name, text)

    def group(self, value: int, count: int, size: int, buffers: int) -> Group:
        """A row. An attribute's value is shown as that of a key: not at all where contents are not."""
        if not value:
            return Group(None, None, count, size, buffers, None)
        text = self._objects.repr.key_text(value, SHOWN)
        name = self._objects.type_at(value)
        return Group(text or f"<{name} object at {value:#x}>", name, count, size, buffers, value)
