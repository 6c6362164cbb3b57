"""What jemalloc and tcmalloc have in common, whose memory is extents of pages: where that may lie, and when a sample of
it is as a form of their structures says."""

from __future__ import annotations

from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.target import Target

__all__ = ["are_enough", "own_ranges"]

# Of a sample so many in ten must be as they are expected. In a small one, whose memory may be damaged, a few may be
# otherwise: no more than that, and beside each of them so many that are.
ENOUGH, FEW, BESIDE = 9, 2, 2


def own_ranges(target: Target) -> Ranges:
    """Where its memory may lie, ascending and joined."""
    return joined([
        (mapping.start, mapping.end)
        for mapping in target.mappings
        if mapping.anonymous and mapping.private and mapping.writable and mapping.readable
    ])  # fmt: skip


def are_enough(fit: int, asked: int) -> bool:
    """Whether of ``asked`` structures as many ``fit`` as prove the others to be damaged."""
    few = asked - fit <= FEW and fit >= BESIDE * (asked - fit)
    return bool(fit) and (few or fit * 10 >= asked * ENOUGH)
