"""What does nothing keep alive?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap import _native
from gdbheap.graph.nodes import Nodes
from gdbheap.heap import Heap

MAX_ADDRESSES = 1000


@dataclass(frozen=True)
class Lost:
    """Objects of one type (None: blocks that are not objects, or whose type is not known) in blocks of one size.
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


@dataclass(frozen=True)
class Head:
    """A lost block to which no other lost block leads; ``in_circle``: one of a circle to which nothing else does.
    ``count`` blocks, itself included, would be free with it, ``retained`` bytes."""

    address: int
    size: int
    type: str | None
    count: int
    retained: int
    in_circle: bool


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
    is."""

    rows: list[Lost]
    objects: Sum
    blocks: Sum
    by_stray: Sum
    heads: list[Head]
    head_count: int
    is_python: bool


def unreachable(heap: Heap, listed: int = MAX_ADDRESSES) -> Unreachable:
    """``listed``: at most how many addresses a row has, and how many heads there are. Raises Unsupported."""
    references, is_python = heap.references, heap.is_python
    rows = [_row(heap, references, row) for row in references.graph.unreachable(listed)]
    rows.sort(key=lambda row: (row.by_stray, -row.bytes - row.buffers, row.type or "", row.size))
    objects = [row for row in rows if row.type is not None and is_python]
    others = [row for row in rows if row.type is None or not is_python]
    blocks, doubtful = ([row for row in others if row.by_stray == of] for of in (False, True))
    found = None if is_python else references.graph.lost_heads(listed)
    heads = [_head(heap, row) for row in found.rows] if found is not None else []
    count = found.count if found is not None else 0
    return Unreachable(rows, _sum(objects), _sum(blocks), _sum(doubtful), heads, count, is_python)


def _row(heap: Heap, references: Nodes, row: _native.Lost) -> Lost:
    kind, addresses = _type(heap, row.type_address), _addresses(references, row.addresses)
    return Lost(kind, row.by_stray, row.size, row.count, row.bytes, row.buffers, addresses)


def _head(heap: Heap, row: _native.Head) -> Head:
    return Head(row.address, row.size, _type(heap, row.type_address), row.count, row.retained, row.in_circle)


def _type(heap: Heap, address: int) -> str | None:
    return heap.paths.kind_name(address) if address else None


def _addresses(references: Nodes, blocks: list[int]) -> list[int]:
    """The addresses of the objects in the blocks, or of the blocks themselves."""
    numbers = [number for block in blocks if (number := references.graph.find(block)) is not None]
    return sorted(node.address for node in references.nodes(numbers))


def _sum(rows: list[Lost]) -> Sum:
    return Sum(*(sum(getattr(row, name) for row in rows) for name in ("count", "bytes", "buffers")))
