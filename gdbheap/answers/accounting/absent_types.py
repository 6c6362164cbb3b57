"""Count the bytes of objects and their buffers that are not resident, by type."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase

from gdbheap.answers.accounting.absent import absent_blocks
from gdbheap.answers.accounting.describing import OBJECT, describe_blocks
from gdbheap.heap import Heap

__all__ = ["absent_kinds", "absent_of"]

# Fewer absent bytes than this are not assigned to types, because that takes a second pass over the heap.
MIN_ABSENT_BYTES = 1 << 20


def absent_kinds(heap: Heap) -> Counter[tuple[str, str | None]]:
    """Return how many bytes of blocks are not resident, by the role and the type of the block (see ``BlockKind``).

    A type is None if it is unknown. The result is empty if the sum of all these bytes is small.
    """
    blocks = list(absent_blocks(heap))
    found: Counter[tuple[str, str | None]] = Counter()
    if sum(block.bytes for block in blocks) >= MIN_ABSENT_BYTES:
        what = describe_blocks(heap, [(block.address, block.bytes) for block in blocks], heap.python.draws_for_owners)
        for block in blocks:
            kind = what[block.address].kind
            found[kind.role, kind.type] += block.bytes
    return found


def absent_of(heap: Heap, pattern: str | None, with_buffers: bool = False) -> int:
    """Return how many bytes of objects are not resident, for the types that match ``pattern``.

    ``with_buffers``: count also the blocks that the objects own.
    """
    return sum(
        size
        for (role, name), size in absent_kinds(heap).items()
        if name is not None and (with_buffers or role == OBJECT) and (pattern is None or fnmatchcase(name, pattern))
    )
