"""What does nothing keep alive?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.heap import Heap
from gdbheap.objects.references import References

LISTED = 1000


@dataclass(frozen=True)
class Lost:
    """Objects of one type (None: blocks that are no objects) in blocks of one size. ``buffers``: bytes of the blocks
    that they own; ``addresses``: of the objects or blocks, the first 1,000."""

    type: str | None
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
    and ``blocks``, to which nothing points."""

    rows: list[Lost]
    objects: Sum
    blocks: Sum


def unreachable(heap: Heap, listed: int = LISTED) -> Unreachable:
    """``listed``: so many addresses in each row. Raises NotAPython or Unsupported."""
    references, name = heap.references, heap.objects.names.name
    rows = [
        Lost(name(kind) if kind else None, size, count, total, buffers, _addresses(references, blocks))
        for kind, size, count, total, buffers, blocks in references.graph.unreachable(listed)
    ]
    rows.sort(key=lambda row: (-row.bytes - row.buffers, row.type or "", row.size))
    return Unreachable(rows, _sum(rows, True), _sum(rows, False))


def _addresses(references: References, blocks: list[int]) -> list[int]:
    """Of the objects in the blocks, or the blocks' own."""
    numbers = [number for block in blocks if (number := references.graph.find(block)) is not None]
    return sorted(node.address for node in references.nodes(numbers))


def _sum(rows: list[Lost], objects: bool) -> Sum:
    meant = [row for row in rows if (row.type is not None) == objects]
    return Sum(*(sum(getattr(row, name) for row in meant) for name in ("count", "bytes", "buffers")))
