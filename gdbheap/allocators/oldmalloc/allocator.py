"""Implement ``Allocator`` for musl's malloc before 1.2.1, called oldmalloc, with chunks between headers.

gdbheap finds oldmalloc without symbols, by its 64 bins, whose circular lists point back to their heads
(src/malloc/malloc.c). No pointer refers to its heaps: a heap begins with a chunk whose header describes a predecessor
of 0 bytes that is in use. The heap's chunks follow one another up to an end chunk.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import cached_property
from typing import ClassVar

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Block,
    KeepReason,
    LedgerLine,
    ListingAllocator,
    Member,
    PartsAllocator,
    Piece,
    PinRow,
    State,
    Surroundings,
    WalkedBlocks,
    WalkedCounts,
)
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.line_ids import LineId, PartId, lines_below
from gdbheap.allocators.mallocng.allocator import MallocngAllocator, need_musl
from gdbheap.allocators.recognised import MUSL
from gdbheap.allocators.request_sizes import of_old_chunk
from gdbheap.allocators.runtimes import NAME_LIMIT
from gdbheap.errors import NotInUse, one_line
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import Ranges, joined, subtract
from gdbheap.targets.target import Damage, Target

NAME = LineId("oldmalloc")
USED, FREE, OVERHEAD = lines_below(NAME, "used", "free", "overhead")


def find_mal(target: Target) -> tuple[LoadedObject, int] | None:
    """Return the loaded object with ``mal``, the static struct that contains the bins, and the address of ``mal``. None
    if it is not found."""
    for loaded in target.objects:
        for found in _native.find_bins(target.space, joined(sorted(loaded.writable_ranges()))):
            return loaded, found
    return None


def _is_newer(around: Surroundings) -> bool:
    try:
        around.allocator(MallocngAllocator)
    except NotInUse:
        return False
    return True


class OldmallocAllocator(ListingAllocator, PartsAllocator):
    """musl's malloc up to 1.2.0 in one target; ``mal`` is the address of its bins.

    Raises NotInUse if this malloc is absent, or was never called."""

    name = NAME
    title = "musl malloc (before 1.2.1)"
    walks = MUSL.name
    replaces = GlibcAllocator
    lines = (
        LedgerLine(USED, NAME, "blocks in use", State.USED),
        LedgerLine(FREE, NAME, "freed, kept by musl", State.FREE),
        LedgerLine(OVERHEAD, NAME, "headers and padding", State.OVERHEAD),
    )
    shown_idle = False
    parts: ClassVar[dict[PartId, LineId]] = {"used": USED, "free": FREE, "header": OVERHEAD, "padding": OVERHEAD}
    why_holes_stay = (
        "musl's old malloc never returns a heap; of a large freed chunk, it returns only the pages in the middle."
    )
    groups = ("mapping is", "mappings are")

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        need_musl(around)
        if _is_newer(around):
            raise NotInUse("musl's malloc is mallocng")
        found = find_mal(self.target)
        if found is None:
            raise NotInUse("no oldmalloc: no static data holds 64 bins with circular lists")
        self.module, self.mal = found
        source = f"{one_line(self.module.path, NAME_LIMIT)}, {self.mal:#x}: 64 bins, each a circular list"
        around.facts.add("musl malloc", NAME, source)

    @cached_property
    def store(self) -> _native.Oldmalloc:
        """The chunks, as the native code has read them.

        Reading it adds a remark if there are blocks of other allocators, which are not included.
        """
        data = joined(sorted(pair for loaded in self.target.objects for pair in loaded.writable_ranges()))
        ranges = self._around.outside(subtract(self._around.anonymous(), data), OldmallocAllocator)
        found = _native.read_oldmalloc(self.target.space, self.mal, ranges, data)
        self._around.note_others(False)
        return found

    @cached_property
    def damage(self) -> list[Damage]:
        """The inconsistencies that were found in chunk headers and bins.

        A thread may be moving a chunk to or from a bin. This leaves a free chunk in no bin, or a bin entry that is not
        a free chunk. Such inconsistencies are transient if there are no more of them than threads."""
        is_passing = len(self.store.unbinned) <= len(self.target.threads)
        found = [Damage.of(row) for row in self.store.damage]
        return found + [Damage.of(row, transient=is_passing) for row in self.store.unbinned]

    def ranges(self) -> Ranges:
        """Return heaps, mappings of a single chunk, and the parts of modules' data that the dynamic linker donated."""
        return joined(self.store.regions())

    def pieces(self) -> Iterable[Piece]:
        """Return the heaps, mappings and donated parts, each as a piece."""
        return (Piece(start, end, None) for start, end in self.store.regions())

    def find(self, address: int) -> Block | None:
        """Return the chunk that holds ``address``; its own address is the program's pointer. None if there is none."""
        found = self.store.find(address)
        if found is None:
            return None
        return Block(found.address, found.size, found.state, self.name, None, None, found.end)

    def requests_for(self, block: Block) -> tuple[int, int]:
        """Return the least and the most bytes for which this malloc hands out a chunk of this size."""
        return of_old_chunk(self.target.machine, block.size)

    def own_part(self, address: int) -> str | None:
        """Return the use of an address before a chunk or between chunks; None for other addresses."""
        return "header of oldmalloc" if any(start <= address < end for start, end in self.ranges()) else None

    def used_sizes(self) -> list[tuple[int, int]]:
        """Return (bytes with the header, number of chunks in use) for each size of chunk."""
        return [(row.size, row.used) for row in self.store.sizes() if row.used]

    def free_sizes(self) -> list[tuple[int, int]]:
        """Return (bytes with the header, number of free chunks) for each size of chunk."""
        return [(row.size, row.free) for row in self.store.sizes() if row.free]

    def give(self, blocks: WalkedBlocks) -> None:
        """Add all chunks to ``blocks``, under the name "chunks of musl"."""
        blocks.general["chunks of musl"] = self.store

    def members(self, row: PinRow) -> list[Member]:
        """Return the block in use, in a list, of the mapping that ``row`` describes. Such a mapping has a
        single chunk."""
        block = self.find(row.end - 1)
        alike = self.store.first_used(block.size, block.size, sys.maxsize) if block is not None else []
        return [found for found in alike if row.start <= found.address < row.end]

    def kept(self, free: int, whole: int) -> list[KeepReason]:
        """Return the one reason why free bytes stay in the process: heaps are never returned to the kernel."""
        return [KeepReason(FREE, free, "in heaps of musl's malloc, which it never returns")]

    def check(self) -> WalkedCounts:
        """Return how many regions and chunks were checked.

        The header of each chunk was compared with the header of the next chunk, and the free chunks were compared with
        the bins."""
        if any(row.transient for row in self.damage):
            self._around.note("oldmalloc-moving")
        return WalkedCounts(
            {"regions": len(self.store.regions()), "chunks": sum(r.used + r.free for r in self.store.sizes())}
        )
