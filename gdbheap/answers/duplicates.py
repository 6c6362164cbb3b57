"""Find equal values that are stored in several objects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import ClassVar

from gdbheap import _native
from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.answers.accounting.absent_types import absent_of
from gdbheap.contents.python.names.paths import ObjectPaths
from gdbheap.contents.python.objects.comparable import KINDS, SINGLES, Values, values_of
from gdbheap.contents.python.text.repr import Limits
from gdbheap.dataclass import dataclass
from gdbheap.graph.nodes import Node
from gdbheap.heap import Heap

# The most distinct values that gdbheap holds in memory at once, at about 100 bytes each.
VALUES_AT_ONCE = 4 << 20
# The most values that are listed, the most objects with these values whose holders are searched, and the most holders
# that are named for each value.
MAX_VALUES, MAX_OBJECTS, MAX_HOLDERS = 100_000, 100_000, 3
TEXTS = Limits(length=80, value=60, items=6, depth=3, reads=300)
CONTAINERS = ("dict", "list", "tuple", "set", "frozenset", "collections.deque")


@dataclass(frozen=True)
class Holding:
    """The objects of one type that refer to copies of a value. ``count``: the number of their references.

    ``type``: the name of the type. For a container, the type of the object that holds it follows: "dict of
    app.Session"."""

    type: str
    count: int


@dataclass(frozen=True)
class Duplicate:
    """A value that several objects store. ``address``: the address of the first of these objects."""

    type: str
    text: str | None
    count: int
    bytes: int
    saved: int
    address: int
    held_by: list[Holding] = field(default_factory=list)


@dataclass(frozen=True)
class TypeSum:
    """Sums over the objects of one type, and over the values that several of them store."""

    type: str
    objects: int
    bytes: int
    values: int
    copies: int
    saved: int


@dataclass(frozen=True)
class Duplicates:
    """The answer of ``heap duplicates``. The values whose copies waste the most bytes come first."""

    sums: ClassVar[tuple[str, ...]] = ("copies", "saved", "absent")
    rows: list[Duplicate]
    types: list[TypeSum]
    count: int
    copies: int
    saved: int
    absent: int = 0


@dataclass(frozen=True)
class ValueRow:
    """The objects of one type with the same value."""

    type: str
    text: str | None
    count: int
    own: int
    address: int


@dataclass(frozen=True)
class ByValue:
    """The answer of ``heap pyobjects --by=value``. The values with the most bytes come first."""

    sums: ClassVar[tuple[str, ...]] = ("count", "own", "absent")
    rows: list[ValueRow]
    matching: int
    count: int
    own: int
    absent: int = 0


class _Comparison:
    """Compares the values of objects, in native passes over one target.

    ``apart``: if true, objects of two interpreters with separate arenas never count as equal.
    """

    def __init__(self, heap: Heap, pattern: str | None, apart: bool = False) -> None:
        objects, census = heap.python.objects, heap.python.census
        self._heap = heap
        self._objects = objects
        names = {row.address: objects.names.name(row.address) for row in census.rows}
        self.values: Values = values_of(objects.release, {**names, **_singles(heap)})
        self.types = {
            address
            for address, name in names.items()
            if name in KINDS and name not in SINGLES and (pattern is None or fnmatchcase(name, pattern))
        }
        self.without = set(census.contested)
        self.apart = _of_interpreters(heap) if apart else []
        count = sum(row.live.count for row in census.rows if row.address in self.types)
        self._slices = max(1, -(-count // VALUES_AT_ONCE))
        self.names = {number: name for name, number in KINDS.items()}

    def equal(self, least: int, by_bytes: bool, top: int | None) -> _native.EqualValues:
        """Return the first ``top`` of the values that at least ``least`` objects have.

        ``by_bytes``: those with the most bytes come first, otherwise those whose copies waste the most bytes.
        """
        most = min(MAX_VALUES, top or MAX_VALUES)
        return _native.equal_values(
            self._objects.heaps, self._objects.layout, self.values, self.types, self.without, self.apart, least,
            by_bytes, self._slices, most, self._heap.labelled("comparing values"),
        )  # fmt: skip

    def objects_of(self, rows: Sequence[_native.EqualGroup]) -> dict[int, list[int]]:
        """Return the addresses of the objects with these values, by the hash of the value."""
        found = _native.equal_objects(
            self._objects.heaps, self._objects.layout, self.values, self.types, self.without, self.apart,
            {row.hash for row in rows}, MAX_OBJECTS, self._heap.labelled("looking for copies"),
        )  # fmt: skip
        groups: dict[int, list[int]] = defaultdict(list)
        for one in found:
            groups[one.hash].append(one.address)
        return groups

    def text(self, address: int) -> str | None:
        """Return a short text of the object at ``address``; None if there is none, or if only its type is known."""
        return self._objects.repr.text(address, TEXTS)


def _of_interpreters(heap: Heap) -> list[tuple[int, int, int]]:
    """Return (start, end, number of the interpreter) for each arena of the subinterpreters, ascending.

    Only subinterpreters with arenas of their own are included.
    """
    found = heap.find_allocator(PymallocAllocator)
    python = None if found is None else found.pymalloc
    size = None if python is None else python.arena_size
    if python is None or size is None:
        return []
    arenas = ((arena.address, number) for number, state in enumerate(python.states) for arena in state.arenas)
    return sorted((address, address + size, number) for address, number in arenas if number)


def _singles(heap: Heap) -> dict[int, str]:
    """Return {address: name} of the static types whose values gdbheap can compare, such as NoneType and bool.

    They include types without an object in the heap: None, True and False lie in static data, but are items of tuples.
    """
    objects = heap.python.objects
    found = {address: objects.names.name(address) for address in objects.static_types()}
    return {address: name for address, name in found.items() if name in KINDS}


def duplicates(heap: Heap, pattern: str | None, top: int | None, with_holders: bool = False) -> Duplicates:
    """Return the values that several objects have, of types that match ``pattern`` (None: all types).

    ``top``: the most values to return, those with the largest savings (None: MAX_VALUES). ``with_holders``: also search
    the holders of their copies. Only objects whose type is exactly str, bytes, int, float or complex, and tuples of
    such objects, are compared. Objects of two interpreters never count as equal, because interpreters cannot share
    them. Raises NotAPython or Unsupported.
    """
    looking = _Comparison(heap, pattern, apart=True)
    found = looking.equal(2, False, top)
    held = _held_by(heap, looking.objects_of(found.rows)) if with_holders else {}
    rows = [
        Duplicate(
            looking.names[row.kind], looking.text(row.address), row.count, row.bytes, row.bytes - row.largest,
            row.address, held.get(row.hash, []),
        )
        for row in found.rows
    ]  # fmt: skip
    sums = [
        TypeSum(looking.names[one.kind], one.objects, one.bytes, one.values, one.copies, one.saved)
        for one in found.sums
    ]
    sums.sort(key=lambda one: (-one.saved, one.type))
    copies, saved = sum(one.copies for one in sums), sum(one.saved for one in sums)
    return Duplicates(rows, sums, found.count, copies, saved, min(saved, _absent(heap, pattern)))


def by_value(heap: Heap, pattern: str | None, top: int | None) -> ByValue:
    """Return the objects of the types that ``duplicates`` compares, grouped by value.

    ``pattern`` and ``top``: as in ``duplicates``, but the values with the most bytes come first. Raises NotAPython or
    Unsupported.
    """
    looking = _Comparison(heap, pattern)
    found = looking.equal(1, True, top)
    rows = [
        ValueRow(looking.names[row.kind], looking.text(row.address), row.count, row.bytes, row.address)
        for row in found.rows
    ]
    count, size = sum(one.objects for one in found.sums), sum(one.bytes for one in found.sums)
    return ByValue(rows, found.count, count, size, _absent(heap, pattern))


def _absent(heap: Heap, pattern: str | None) -> int:
    """Return how many bytes of the compared types' objects are not resident."""
    return sum(absent_of(heap, name) for name in KINDS if pattern is None or fnmatchcase(name, pattern))


def _held_by(heap: Heap, groups: dict[int, list[int]]) -> dict[int, list[Holding]]:
    """Return the most frequent holders of each group of objects, by the group's key."""
    references, paths = heap.python.references, heap.python.paths
    graph = references.graph
    numbers = {key: {graph.find(address) for address in group} - {None} for key, group in groups.items()}
    of_number = {number: key for key, group in numbers.items() for number in group if number is not None}
    rows = graph.referrers(set(of_number))
    pairs = [(row.source, of_number[row.target]) for row in rows if row.strength <= references.believed]
    holders = _Holders(paths, {source for source, _key in pairs})
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for source, key in pairs:
        counts[key][holders.name(source)] += 1
    return {
        key: [Holding(name, count) for name, count in found.most_common(MAX_HOLDERS)] for key, found in counts.items()
    }


class _Holders:
    """Names holders by their type. For a container, the name also has the type of the object that holds the
    container."""

    def __init__(self, paths: ObjectPaths, sources: set[int]) -> None:
        self._paths = paths
        nodes = {node.id: node for node in paths.references.nodes(list(sources))}
        self._nodes: dict[int, Node] = nodes
        self._owner = self._owners({number for number, node in nodes.items() if node.kind == "buffer"})
        containers = {
            number for number, node in nodes.items() if node.kind != "buffer" and self._type(node) in CONTAINERS
        }
        above = dict(self._above(containers))
        self._read(above.values())
        owners = self._owners({number for number in above.values() if nodes[number].kind == "buffer"})
        self._container = {number: owners.get(held, held) for number, held in above.items()}
        self._names: dict[int, str] = {}

    def _above(self, numbers: set[int]) -> Iterator[tuple[int, int]]:
        """Yield (number of the node, number of one node that refers to it) for each node in ``numbers`` that has a
        referrer.
        """
        if numbers:
            for row in self._paths.references.graph.referrers(numbers):
                if row.strength <= self._paths.references.believed:
                    yield row.target, row.source

    def _owners(self, buffers: set[int]) -> dict[int, int]:
        """Return the number of each buffer's owner, by the number of the buffer."""
        found = dict(self._above(buffers))
        self._read(found.values())
        return found

    def _read(self, numbers: Iterable[int]) -> None:
        missing = sorted(set(numbers) - self._nodes.keys())
        self._nodes.update((node.id, node) for node in self._paths.references.nodes(missing))

    def _type(self, node: Node) -> str:
        return self._paths.type_name(node)

    def name(self, number: int) -> str:
        """Return the name of the holder with the node number ``number``."""
        if number not in self._names:
            number_of = self._owner.get(number, number)
            name = self._type(self._nodes[number_of])
            above = self._container.get(number_of)
            self._names[number] = name if above is None else f"{name} of {self._type(self._nodes[above])}"
        return self._names[number]
