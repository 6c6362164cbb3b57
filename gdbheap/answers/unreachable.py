"""What does nothing keep alive?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gdbheap import _native
from gdbheap.answers.describing import looks
from gdbheap.answers.unfinished import finishing, not_examined
from gdbheap.graph.nodes import Nodes
from gdbheap.heap import Heap

MAX_ADDRESSES = 1000
# Blocks of a row whose contents are looked at, and what the allocator may have of a block's size.
ASKED = 32
HEADER = 16


@dataclass(frozen=True)
class Lost:
    """Objects of one type (None: blocks that are not objects, or whose type is not known) in blocks of one size.
    ``content``: what most blocks without a type look like, None where they differ, or there is a type.
    ``by_stray``: whether stray words point to the blocks: on stacks, in registers, or into the middle; without Python
    only those into the middle are stray. ``buffers``: bytes of the blocks that they own; ``addresses``: of the objects
    or blocks, the first 1,000."""

    type: str | None
    by_stray: bool
    size: int
    count: int
    bytes: int
    buffers: int
    addresses: list[int]
    content: str | None = None


@dataclass(frozen=True)
class Head:
    """A lost block to which no other lost block leads; ``in_circle``: one of a circle to which nothing else does;
    ``content``: what it looks like, where its type is not known.
    ``count`` blocks, itself included, would be free with it, ``retained`` bytes."""

    address: int
    size: int
    type: str | None
    count: int
    retained: int
    in_circle: bool
    content: str | None = None


@dataclass(frozen=True)
class Sum:
    """Over all rows of one kind."""

    count: int
    bytes: int
    buffers: int


@dataclass(frozen=True)
class Unreachable:
    """The answer of ``heap unreachable``, largest first: ``objects``, all of whose references come from one another,
    ``blocks``, to which nothing points, and ``by_stray``, blocks to which only stray words point: a running function
    uses them, or such a word is left over, or a number, and they are lost too. ``heads``: of lost structures
    those that retain most, at most 1,000 of ``head_count``; none where there is Python. ``is_python``: whether there
    is; ``lacking``: bytes of the program's memory that a core which is cut short lacks, and which may lead to what is
    listed. ``not_examined``: bytes in use that may be lost, and nobody knows because not all references could be read;
    ``next``: the command lines that would examine them."""

    rows: list[Lost]
    objects: Sum
    blocks: Sum
    by_stray: Sum
    heads: list[Head]
    head_count: int
    is_python: bool
    lacking: int
    not_examined: int = 0
    next: list[str] = field(default_factory=list)


def unreachable(heap: Heap, listed: int = MAX_ADDRESSES) -> Unreachable:
    """``listed``: at most how many addresses a row has, and how many heads there are. Raises Unsupported."""
    references, is_python = heap.references, heap.is_python
    graph = references.graph
    if graph.is_cut:
        return _unfinished(heap, references, listed)
    raw, found = graph.unreachable(listed), None if is_python else graph.lost_heads(listed)
    contents = _Contents(heap, raw, found.rows if found is not None else [])
    rows = [_row(heap, references, row, contents.of_row(row)) for row in raw]
    rows.sort(key=lambda row: (row.by_stray, -row.bytes - row.buffers, row.type or "", row.size))
    objects = [row for row in rows if row.type is not None and is_python]
    others = [row for row in rows if row.type is None or not is_python]
    blocks, doubtful = ([row for row in others if row.by_stray == of] for of in (False, True))
    heads = [_head(heap, row, contents.of_head(row)) for row in found.rows] if found is not None else []
    count = found.count if found is not None else 0
    sums = _sum(objects), _sum(blocks), _sum(doubtful)
    return Unreachable(rows, *sums, heads, count, is_python, heap.target.lacking)


def _unfinished(heap: Heap, references: Nodes, listed: int) -> Unreachable:
    """Return the objects whose references are all counted and come from one another: whatever was not read cannot lead
    to them. All else that nothing leads to is not examined."""
    raw = references.graph.unreachable(listed, counted=True) if heap.is_python else []
    rows = [_row(heap, references, row, None) for row in raw if row.type_address]
    rows.sort(key=lambda row: (-row.bytes - row.buffers, row.type or "", row.size))
    objects, nothing = _sum(rows), Sum(0, 0, 0)
    rest = max(0, not_examined(references) - objects.bytes - objects.buffers)
    more = finishing(heap, references, "unreachable")
    lacking = heap.target.lacking
    return Unreachable(rows, objects, nothing, nothing, [], 0, heap.is_python, lacking, rest, more)


def _row(heap: Heap, references: Nodes, row: _native.Lost, content: str | None) -> Lost:
    kind, addresses = _type(heap, row.type_address), _addresses(references, row.addresses)
    return Lost(kind, row.by_stray, row.size, row.count, row.bytes, row.buffers, addresses, content)


def _head(heap: Heap, row: _native.Head, content: str | None) -> Head:
    return Head(row.address, row.size, _type(heap, row.type_address), row.count, row.retained, row.in_circle, content)


class _Contents:
    """What blocks without a type look like, some of each row, all of them looked at together."""

    def __init__(self, heap: Heap, rows: Sequence[_native.Lost], heads: Sequence[_native.Head]) -> None:
        nameless = [(address, row.size) for row in rows if not row.type_address for address in row.addresses[:ASKED]]
        nameless += [(head.address, head.size) for head in heads if not head.type_address]
        blocks = [(address, max(size - HEADER, 0)) for address, size in dict.fromkeys(nameless)]
        self._known = dict(zip((address for address, _size in blocks), looks(heap, blocks)))

    def of_row(self, row: _native.Lost) -> str | None:
        """What more than half of them look like."""
        known = Counter(self._known[address] for address in row.addresses[:ASKED] if address in self._known)
        return next((look for look, count in known.items() if 2 * count > sum(known.values())), None)

    def of_head(self, head: _native.Head) -> str | None:
        return self._known.get(head.address)


def _type(heap: Heap, address: int) -> str | None:
    return heap.paths.kind_name(address) if address else None


def _addresses(references: Nodes, blocks: list[int]) -> list[int]:
    """The addresses of the objects in the blocks, or of the blocks themselves."""
    numbers = [number for block in blocks if (number := references.graph.find(block)) is not None]
    return sorted(node.address for node in references.nodes(numbers))


def _sum(rows: list[Lost]) -> Sum:
    return Sum(*(sum(getattr(row, name) for row in rows) for name in ("count", "bytes", "buffers")))
