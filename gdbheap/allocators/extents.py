"""The base of the allocators jemalloc and tcmalloc. Both get extents of pages from the kernel and cut them into runs of
equal blocks.

A target may have several copies of either allocator, each in another module."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import ClassVar

from gdbheap import _native
from gdbheap.allocators.allocator import Block, Member, Piece, PinRow
from gdbheap.allocators.several import SeveralAllocators
from gdbheap.allocators.threads_inside import Inside
from gdbheap.targets.ranges import Ranges, containing, joined
from gdbheap.targets.target import Target

__all__ = ["ExtentLibraries", "are_enough", "own_ranges"]

# A sample of structures fits a layout if at least ENOUGH of every ten structures look as expected.
#
# It also fits if at most FEW structures look wrong, and at least BESIDE times that number look right. Damage may be the
# reason why these few look wrong.
ENOUGH, FEW, BESIDE = 9, 2, 2


def own_ranges(target: Target) -> Ranges:
    """Return the ranges in which memory of jemalloc or tcmalloc can lie, ascending, with adjacent ranges joined. The
    memory there is private, anonymous, readable and writable.
    """
    return joined([
        (mapping.start, mapping.end)
        for mapping in target.mappings
        if mapping.anonymous and mapping.private and mapping.writable and mapping.readable
    ])  # fmt: skip


def are_enough(fit: int, asked: int) -> bool:
    """Return whether enough structures of a sample fit a layout. If so, the layout is accepted, and structures that do
    not fit count as damaged.

    ``asked``: the number of structures in the sample. ``fit``: the number that fits the layout."""
    few = asked - fit <= FEW and fit >= BESIDE * (asked - fit)
    return bool(fit) and (few or fit * 10 >= asked * ENOUGH)


class ExtentLibraries(SeveralAllocators):
    """All copies in a target of an allocator that cuts extents of pages into runs of equal blocks.

    ``functions``: prefixes of its functions' names, by which gdbheap recognises a thread inside the allocator.
    """

    functions: ClassVar[tuple[str, ...]]
    shown_idle = False
    emptied = "would be empty, and be returned later"

    @property
    @abstractmethod
    def store(self) -> _native.ExtentStore:
        """The extents and blocks of all copies, as the native code has read them."""

    @cached_property
    def areas(self) -> list[_native.ExtentArea]:
        """The areas, ascending. An area is a run of adjacent extents and of the allocator's own memory."""
        return self.store.areas()

    @cached_property
    def _ranges(self) -> Ranges:
        return [(area.start, area.end) for area in self.areas]

    def ranges(self) -> Ranges:
        """Return all areas, including address space that was returned to the kernel."""
        return self._ranges

    def pieces(self) -> Iterable[Piece]:
        """Return each area as a piece of address space."""
        return (Piece(area.start, area.end, None) for area in self.areas)

    def find(self, address: int) -> Block | None:
        """Return the block, or the part of an extent outside of blocks, that holds ``address``; None if there is
        neither.

        ``Block.list`` names the free list or cache that contains a free block."""
        found = self.store.find(address)
        if found is None:
            return None
        end = found.address + found.size
        return Block(found.address, found.size, found.state, self.name, found.arena, found.list, end)

    def own_part(self, address: int) -> str | None:
        """Return the use of an address in the allocator's own memory, or in an extent without a block; None for other
        addresses."""
        found = self.store.find(address)
        return None if found is None else f"{found.state} of {self.title}"

    def owner_at(self, address: int) -> str | None:
        """Return the module whose copy owns ``address``; None if none does.

        If the target has only one copy, its module is returned for every address."""
        if len(self.roots) == 1:
            return self.owner(0)
        area = containing(self._ranges, address)
        return None if area is None else self.owner(self.root_of_piece(area[0]))

    def members(self, row: PinRow) -> list[Member]:
        """Return the blocks in use in the run that ``row`` describes."""
        return self.store.used_in_run(row.start)

    @cached_property
    def inside(self) -> Inside:
        """The threads that may be inside the allocator."""
        return Inside.of(self, [root.module for root in self.roots], self.functions)
