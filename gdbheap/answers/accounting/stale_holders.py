"""Compute how many bytes the removal of an object may free at most.

A word on a stack or in a register may be left over from an earlier call. If such stale words do not count as
references, a removal frees more."""

from __future__ import annotations

from gdbheap import _native

__all__ = ["MIN_STALE_PART", "most_freed"]

# Memory that only stale words may hold is mentioned if it is at least one part in MIN_STALE_PART of the memory that may
# be freed.
MIN_STALE_PART = 20


def most_freed(graph: _native.Graph, number: int, retained: int) -> int | None:
    """Return how many bytes the removal of a node may free at most, if stale words are not references.

    ``retained``: the bytes that the removal certainly frees. None if the result is not clearly above ``retained``."""
    if graph.is_cut:
        return None
    most = graph.also_held({number}, 0).most
    return most if MIN_STALE_PART * (most - retained) >= most > retained else None
