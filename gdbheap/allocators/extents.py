"""What the readers of jemalloc and tcmalloc share, as both allocators manage extents of pages.

This module says where their memory can lie, and when a sample of structures fits a known layout."""

from __future__ import annotations

from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.target import Target

__all__ = ["are_enough", "own_ranges"]

# ENOUGH in ten structures of a sample must look as expected. In a small sample it suffices that at most FEW do not, and
# that at least BESIDE times as many do: their memory may be damaged.
ENOUGH, FEW, BESIDE = 9, 2, 2


def own_ranges(target: Target) -> Ranges:
    """Return the ranges where memory of such an allocator can lie, ascending and joined.

    They are private, anonymous, readable and writable."""
    return joined([
        (mapping.start, mapping.end)
        for mapping in target.mappings
        if mapping.anonymous and mapping.private and mapping.writable and mapping.readable
    ])  # fmt: skip


def are_enough(fit: int, asked: int) -> bool:
    """Return whether enough of a sample's structures fit a layout to conclude that the remaining ones are damaged.

    ``asked``: the number of structures in the sample. ``fit``: how many of them fit."""
    few = asked - fit <= FEW and fit >= BESIDE * (asked - fit)
    return bool(fit) and (few or fit * 10 >= asked * ENOUGH)
