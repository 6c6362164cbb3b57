"""The programs that are stopped at random instants, one for each allocator."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.allocators.allocator import Block
from gdbheap.allocators.jemalloc.allocator import JemallocLibraries
from gdbheap.allocators.mallocng.allocator import MallocngAllocator
from gdbheap.allocators.mimalloc.library import MimallocLibraries
from gdbheap.allocators.oldmalloc.allocator import OldmallocAllocator
from gdbheap.allocators.tcmalloc.allocator import TcmallocLibraries
from support.instants import Held, Subject

# A thread may be taking or giving back one block, and two inside realloc.
IN_HAND = 2


def is_block(row: Held, block: Block | None) -> bool:
    """Return whether a block begins at the pointer."""
    return block is not None and (block.address, block.size, block.state) == (row[0], row[1], "used")


def holds(row: Held, block: Block | None) -> bool:
    """Return whether a block contains the pointer and ends after the usable bytes, or after the requested ones."""
    if block is None or block.state != "used" or block.address > row[0]:
        return False
    return (block.end if block.asked is None else block.address + block.asked) - row[0] == row[1] >= row[2]


def ends(row: Held, block: Block | None) -> bool:
    """Return whether a block begins at the pointer and ends after the usable bytes."""
    return block is not None and (block.address, block.state, block.end - row[0]) == (row[0], "used", row[1])


@dataclass(frozen=True)
class Kind:
    """An allocator: its builds, and how many blocks beyond its own each thread may be taking or giving back if that
    is noted; ``off``: how many of each thread's held blocks may still count as cached."""

    subject: Subject
    most: int
    off: int = 0


KINDS = {
    # The number of blocks with which a cache is filled at once, and the number that it returns at once.
    "jemalloc": Kind(Subject(JemallocLibraries, is_block), 100, 100),
    # TCMALLOC_TRANSFER_NUM_OBJ.
    "tcmalloc": Kind(Subject(TcmallocLibraries, is_block), 32),
    "mimalloc": Kind(Subject(MimallocLibraries, holds), 100),
    "mallocng": Kind(Subject(MallocngAllocator, ends), IN_HAND),
    "oldmalloc": Kind(Subject(OldmallocAllocator, ends), IN_HAND),
}
