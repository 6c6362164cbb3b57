"""What jemalloc and tcmalloc share: both manage extents of pages.

This module says where such memory can lie, and when a sample of structures fits a known layout."""

from __future__ import annotations

from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.target import Target

__all__ = ["are_enough", "own_ranges"]

# Nine in ten structures of a sample must look as expected. In a small sample, whose memory may be damaged, at most two
# may look otherwise, and only if at least twice as many look right.
ENOUGH, FEW, BESIDE = 9, 2, 2


def own_ranges(target: Target) -> Ranges:
    """Return the ranges where the allocator's memory can lie (private, anonymous, readable, writable), ascending and
    joined."""
    return joined([
        (mapping.start, mapping.end)
        for mapping in target.mappings
        if mapping.anonymous and mapping.private and mapping.writable and mapping.readable
    ])  # fmt: skip


def are_enough(fit: int, asked: int) -> bool:
    """Return whether enough of ``asked`` structures ``fit`` to conclude that the others are damaged."""
    few = asked - fit <= FEW and fit >= BESIDE * (asked - fit)
    return bool(fit) and (few or fit * 10 >= asked * ENOUGH)
