"""What does nothing keep alive?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.heap import Heap
from gdbheap.python.references import References

MAX_ADDRESSES = 1000


@dataclass(frozen=True)
class Lost:
    """Objects of one type (None: blocks that are not objects) in blocks of one size. ``by_stray``: whether stray words
    point to the blocks: on stacks, in registers, or into the middle. ``buffers``: bytes of the blocks that they own;
    ``addresses``: of the objects or blocks, the first 1,000."""

    type: str | None
    by_stray: bool
    size: int
    count: int
    bytes: int
    buffers: int
    addresses: list[int]


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
    uses them, or such a word is left over, or a number, and they are lost too."""

    rows: list[Lost]
    objects: Sum
    blocks: Sum
    by_stray: Sum


def unreachable(heap: Heap, listed: int = MAX_ADDRESSES) -> Unreachable:
    """``listed``: at most how many addresses a row has. Raises NotAPython or Unsupported."""
    references, name = heap.references, heap.objects.names.name
    rows = [
        Lost(
            name(row.type_address) if row.type_address else None,
            row.by_stray,
            row.size,
            row.count,
            row.bytes,
            row.buffers,
            _addresses(references, row.addresses),
        )
        for row in references.graph.unreachable(listed)
    ]
    rows.sort(key=lambda row: (row.by_stray, -row.bytes - row.buffers, row.type or "", row.size))
    objects = [row for row in rows if row.type is not None]
    blocks, doubtful = ([row for row in rows if row.type is None and row.by_stray == of] for of in (False, True))
    return Unreachable(rows, _sum(objects), _sum(blocks), _sum(doubtful))


def _addresses(references: References, blocks: list[int]) -> list[int]:
    """The addresses of the objects in the blocks, or of the blocks themselves."""
    numbers = [number for block in blocks if (number := references.graph.find(block)) is not None]
    return sorted(node.address for node in references.nodes(numbers))


def _sum(rows: list[Lost]) -> Sum:
    return Sum(*(sum(getattr(row, name) for row in rows) for name in ("count", "bytes", "buffers")))
