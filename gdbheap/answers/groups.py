"""Count the objects of a type by the value of one of their attributes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from fnmatch import fnmatchcase
from typing import ClassVar

from gdbheap import _native
from gdbheap.answers.accounting.absent_types import absent_of
from gdbheap.contents.python.objects.bounded_reads import Pages
from gdbheap.contents.python.objects.comparable import KINDS, values_of
from gdbheap.contents.python.objects.reading import FIRST_ENTRIES, Allowance
from gdbheap.contents.python.text.repr import Limits
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, Unsupported, UsageError
from gdbheap.heap import Heap
from gdbheap.layout.cpython import OB_TYPE

# Two objects of a type in KINDS are equal if their values are equal; an object of any other type equals only itself. If
# values cannot be compared (a str of another release), their whole texts (up to WHOLE) are compared.
WHOLE = Limits(length=1 << 16, value=1 << 16, items=1 << 10, depth=6, reads=4_000)
SHOWN = Limits(length=80, value=60, items=6, depth=3, reads=300)
# Numbers that stand for the address of a value: MISSING if the attribute is not set, UNREAD if its value is unknown.
MISSING, UNREAD = 0, -1
COUNT, BYTES, BUFFERS = range(3)
NAMELESS, UNREADABLE = "type at 0x", "<unreadable at 0x"
ORDERS = {"count": COUNT, "bytes": BYTES, "buffers": BUFFERS}


@dataclass(frozen=True)
class Group:
    """The objects whose attribute has the same value. ``address``: the address of this value."""

    value: str | None
    type: str | None
    count: int
    own: int
    buffers: int
    address: int | None


@dataclass(frozen=True)
class Unread:
    """Objects whose attribute could not be read."""

    count: int
    own: int
    buffers: int


@dataclass(frozen=True)
class Groups:
    """The answer of ``heap pyobjects --type=GLOB --group=ATTRIBUTE``, by default the group with the most objects first.

    The sums count all groups, and the objects whose attribute could not be read.
    """

    sums: ClassVar[tuple[str, ...]] = ("count", "own", "buffers", "absent")
    attribute: str
    rows: list[Group]
    not_read: Unread
    count: int
    own: int
    buffers: int
    absent: int = 0
    matching: int | None = None


def groups(heap: Heap, pattern: str | None, attribute: str, order: str = "count", top: int | None = None) -> Groups:
    """Return the live objects of types that match ``pattern``, grouped by the value of an attribute.

    The attribute may lie in a slot, in a dict, or in the object's values without a dict; attributes of the class do not
    count. Only the ``top`` largest groups, by one of ORDERS, are returned. The target is marked as partial if a value
    could not be read. Raises UsageError if ``pattern`` is None, NotAPython or Unsupported.
    """
    if pattern is None:
        raise UsageError(
            "heap pyobjects: --group=ATTRIBUTE needs --type=GLOB, which names the type that has the attribute"
        )
    rows, reading = _instances(heap, pattern), _AttributeReader(heap, attribute)
    values = [reading.value(row.address, row.type_address) for row in rows]
    sums = _sums(rows, values, reading.keys(set(values)))
    _value, *unread = sums.pop(UNREAD, (UNREAD, 0, 0, 0))
    heap.target.partial |= bool(unread[COUNT])
    found = sorted(sums.values(), key=lambda one: (-one[1 + ORDERS[order]], -one[1 + BYTES], one[0]))
    count, size, buffers = (sum(row[place] for row in [(0, *unread), *found]) for place in (1, 2, 3))
    named, absent = [reading.group(*one) for one in found[:top]], absent_of(heap, pattern, True)
    return Groups(attribute, named, Unread(*unread), count, size, buffers, absent, len(found))


def _instances(heap: Heap, pattern: str) -> list[_native.Instance]:
    objects, census = heap.python.objects, heap.python.census
    kinds = {
        row.address: 0
        for row in census.rows
        if row.live.count and fnmatchcase(objects.names.name(row.address), pattern)
    }
    return objects.instances(kinds, set(census.contested), "address", None, heap.python.classifying).rows


def _sums(
    rows: Iterable[_native.Instance], values: Iterable[int], keys: dict[int, object]
) -> dict[object, tuple[int, int, int, int]]:
    """Return, for each key, the first value that has the key, the number of objects, their bytes, and the bytes of
    their buffers."""
    sums: dict[object, tuple[int, int, int, int]] = {}
    for row, value in zip(rows, values):
        key = keys[value]
        first, count, size, buffers = sums.get(key, (value, 0, 0, 0))
        sums[key] = (first, count + 1, size + row.size, buffers + row.buffers)
    return sums


class _AttributeReader:
    """Reads the same attribute of many objects."""

    def __init__(self, heap: Heap, attribute: str) -> None:
        self._heap = heap
        self._objects = heap.python.objects
        self._attribute = attribute
        self._memory = Pages(heap.target.space)
        # No more entries can exist: each lies in the table of one dict, or is a word of an instance's own values.
        used = sum(store.used.bytes for store in heap.python.census.stores)
        self._allowance = Allowance(FIRST_ENTRIES + used // heap.target.machine.word)
        self._readers: dict[int, Callable[[int], int]] = {}
        self._types: dict[int, int] = {}

    def value(self, address: int, kind: int) -> int:
        """Return the address of the attribute's value in the object at ``address``; MISSING if it is not set, UNREAD if
        unknown."""
        try:
            if kind not in self._readers:
                attributes = self._objects.repr.attributes
                self._readers[kind] = attributes.reader(self._memory, address, kind, self._attribute, self._allowance)
            found = self._readers[kind](address)
        except (Fault, OverflowError, Unsupported):
            return UNREAD
        # If reading ended early, an attribute that was not found may still exist.
        return found or (UNREAD if self._heap.target.cut_short else MISSING)

    def keys(self, values: Collection[int]) -> dict[int, object]:
        """Return a key for each value; equal values have the same key. UNREAD if a value cannot be read."""
        names = {value: self._name(value) for value in sorted(values) if value > 0}
        known = [(value, name) for value, name in names.items() if name in KINDS]
        found: dict[int, object] = {value: UNREAD if names.get(value, "") is None else value for value in values}
        for (value, name), one in zip(known, self._hashes([value for value, _name in known])):
            found[value] = self._text(value, name) if one is None else (name, one)
        return found

    def _name(self, value: int) -> str | None:
        """Return the name of the type of the object at ``value``; None if it cannot be read."""
        try:
            kind = self._types[value] = self._memory.word(value + self._objects.release.at(OB_TYPE))
            name = self._objects.names.name(kind)
        except (Fault, OverflowError):
            return None
        return None if name.startswith(NAMELESS) and self._heap.target.cut_short else name

    def _hashes(self, values: list[int]) -> list[int | None]:
        """Return the hash of each value, None if it has none. All values are read in one pass, so that neighbouring
        memory is read once.
        """
        kinds = {kind: self._objects.names.name(kind) for kind in self._types.values()}
        kinds |= {address: self._objects.names.name(address) for address in self._objects.static_types()}
        try:
            where = values_of(self._objects.release, kinds)
        except Unsupported:
            return [None] * len(values)
        objects, progress = self._objects, self._heap.labelled("comparing values")
        return _native.value_hashes(objects.heaps, objects.layout, where, values, progress)

    def _text(self, value: int, name: str | None) -> object:
        """Return a key for a value without a hash: the name of the value's type, with the whole text of the value.

        If the value has no text either, return its address.
        """
        disclosure = self._objects.repr.disclosure
        # This text is only compared and never shown, so contents are allowed.
        before, disclosure.contents = disclosure.contents, True
        try:
            text = self._objects.repr.text(value, WHOLE)
        finally:
            disclosure.contents = before
        if text is None:
            return UNREAD if self._heap.target.cut_short else value
        return UNREAD if UNREADABLE in text else (name, text)

    def group(self, value: int, count: int, size: int, buffers: int) -> Group:
        """Return the row for ``count`` objects whose attribute is the object at ``value``, or is not set if ``value``
        is 0.

        ``size``: the bytes of the objects. ``buffers``: the bytes of their buffers. The value's text is hidden if
        contents may not be shown."""
        if not value:
            return Group(None, None, count, size, buffers, None)
        text = self._objects.repr.key_text(value, SHOWN)
        name = self._objects.names.name(self._types[value])
        return Group(text or f"<{name} object at {value:#x}>", name, count, size, buffers, value)
