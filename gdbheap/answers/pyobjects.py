"""Count the Python objects and their bytes by type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Optional

from gdbheap import _native
from gdbheap.answers.accounting.absent_types import absent_kinds
from gdbheap.answers.accounting.describing import describe_blocks, looks
from gdbheap.contents.python.content import MAX_UNIDENTIFIED
from gdbheap.contents.python.objects.owned import REACHED
from gdbheap.dataclass import dataclass
from gdbheap.documents import renamed_keys, with_own_bytes
from gdbheap.heap import Heap


@dataclass(frozen=True)
class TypeRow:
    """The live objects of one type. ``own``: the bytes of their own blocks; ``buffers``: the bytes of the blocks that
    they own.

    ``bytes``: the sum of ``own`` and ``buffers``. ``reached``: the part of ``buffers`` that no known field names, and
    that only these objects reach. ``absent``: bytes that are not resident. ``mapped``: memory that the objects mapped.
    """

    type: str
    count: int
    own: int
    buffers: int
    bytes: int
    reached: int
    absent: int = 0
    mapped: int = 0

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``content`` of a format 1 file with today's meaning of ``bytes``, which includes the buffers."""
        return with_own_bytes(content)


@dataclass(frozen=True)
class Count:
    """The sums over all types, with the same fields as the row of a type."""

    count: int
    own: int
    buffers: int
    bytes: int
    reached: int
    absent: int = 0
    mapped: int = 0

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``content`` of a format 1 file with today's meaning of ``bytes``, which includes the buffers."""
        return with_own_bytes(content)


@dataclass(frozen=True)
class Tally:
    """A number of blocks (``count``), and their bytes."""

    count: int
    bytes: int


@dataclass(frozen=True)
class RootBlocks:
    """Blocks that no object owns, but to which the static data of one library, or the threads, point."""

    name: str
    count: int
    bytes: int


@dataclass(frozen=True)
class UnknownBlock:
    """A block in use that was not identified, with a description of its bytes."""

    address: int
    size: int
    look: str

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``content`` of a format 1 file with today's key names."""
        return renamed_keys(content, {"looks": "look"})


@dataclass(frozen=True)
class PyObjects:
    """The answer of ``heap pyobjects``, largest type first.

    ``all_used``: the blocks in use of pymalloc, CPython's mimalloc and glibc's malloc, and the objects ``elsewhere``.
    It is the sum of six parts. ``total``: objects and their buffers. ``free_lists``. ``interpreter``. ``roots``.
    ``unclassified``: unidentified blocks of pymalloc and CPython's mimalloc. ``other_chunks``: unidentified chunks of
    glibc.

    ``unidentified``: the largest blocks of ``unclassified`` and ``other_chunks``. ``elsewhere``: objects in memory that
    is not walked; their sizes come from their own fields."""

    rows: list[TypeRow]
    total: Count
    all_used: Tally
    free_lists: Tally
    interpreter: Tally
    roots: list[RootBlocks]
    unclassified: Tally
    other_chunks: Tally
    unidentified: list[UnknownBlock]
    elsewhere: Tally = Tally(0, 0)

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``content`` of a format 1 file with today's key names."""
        return renamed_keys(content, {"types": "rows", "used": "all_used", "unknown": "unidentified"})


OF_PYTHON = ("pools", "pages", "claimed")
CLAIMED = "claimed"
TOTALS = ("count", "own", "buffers", "bytes", "reached", "absent", "mapped")


def pyobjects(heap: Heap, pattern: str | None = None, most: int = MAX_UNIDENTIFIED) -> PyObjects:
    """Return a row for each type name that matches ``pattern``, and the total of these rows.

    At most ``most`` unidentified blocks are listed, and never more than MAX_UNIDENTIFIED. Raises NotAPython or
    Unsupported.
    """
    names = heap.python.objects.names
    census = heap.python.owned_census
    sums: dict[str, list[int]] = {}
    idle = [0, 0]
    for of_type in census.rows:
        live, freed, owned = of_type.live, of_type.idle, of_type.owned
        row = sums.setdefault(names.name(of_type.address), [0, 0, 0, 0, 0])
        reached = sum(buffers.bytes for buffers in owned if buffers.role == REACHED)
        beside = sum(buffers.bytes for buffers in owned)
        for place, value in enumerate((live.count, live.bytes, beside, live.bytes + beside, reached)):
            row[place] += value
        idle = [idle[0] + freed.count, idle[1] + freed.bytes]
    absent, mapped = Counter[Optional[str]](), _mapped(heap)
    for (_role, name), size in absent_kinds(heap).items():
        absent[name] += size
    types = [
        replace(TypeRow(name, *row), absent=absent[name], mapped=mapped[name])
        for name, row in sums.items()
        if row[0] or row[2]
    ]
    types = [row for row in types if pattern is None or fnmatchcase(row.type, pattern)]
    types.sort(key=lambda row: (-(row.bytes + row.mapped), row.type))
    total = Count(*(sum(getattr(row, name) for row in types) for name in TOTALS))
    used = _sum(store.used for store in census.stores)
    unclassified = _sum(store.unclassified for store in census.stores if store.name in OF_PYTHON)
    other = _sum(store.unclassified for store in census.stores if store.name not in OF_PYTHON)
    elsewhere = _sum(store.used for store in census.stores if store.name == CLAIMED)
    own, *others = census.roots
    libraries = heap.python.objects.roots.names[1:]
    roots = [RootBlocks(name, row.count, row.bytes) for name, row in zip(libraries, others) if row.count]
    roots.sort(key=lambda root: (-root.bytes, root.name))
    unknown = [
        UnknownBlock(*block, look) for block, look in zip(census.unknown[:most], looks(heap, census.unknown[:most]))
    ]
    return PyObjects(
        types,
        total,
        used,
        Tally(*idle),
        _sum([own]),
        roots,
        unclassified,
        other,
        unknown,
        elsewhere,
    )


def _mapped(heap: Heap) -> Counter[str | None]:
    """Return how many bytes of memory the objects of each type mapped; the type is None for blocks without a known
    type.
    """
    sizes, found = {one.block: 0 for one in heap.python.mapped}, Counter[Optional[str]]()
    for one in heap.python.mapped:
        sizes[one.block] += one.size
    blocks = [(block.address, block.size) for block in map(heap.block_at, sizes) if block is not None]
    what = describe_blocks(heap, blocks, heap.python.draws_for_owners)
    for address, _size in blocks:
        found[what[address].kind.type] += sizes[address]
    return found


def _sum(tallies: Iterable[_native.Tally]) -> Tally:
    rows = list(tallies)
    return Tally(sum(row.count for row in rows), sum(row.bytes for row in rows))
