"""Functions for the readers of jemalloc and tcmalloc, which both manage extents of pages.

They say where the memory of these allocators can lie, and whether a sample of structures fits a known layout."""

from __future__ import annotations

from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.target import Target

__all__ = ["are_enough", "own_ranges"]

# A sample of structures fits a layout if at least ENOUGH in ten of its structures look as expected. It also fits if at
# most FEW structures do not, and at least BESIDE times as many do: the memory of the few may be damaged.
ENOUGH, FEW, BESIDE = 9, 2, 2


def own_ranges(target: Target) -> Ranges:
    """Return the ranges where memory of jemalloc or tcmalloc can lie, ascending and joined.

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
