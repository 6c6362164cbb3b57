"""Predict what ``malloc_trim()`` would return to the kernel, and compare the prediction with the result of a call."""

from __future__ import annotations

from dataclasses import replace

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.glibc.trim import ArenaTrim, Trim
from gdbheap.errors import Unsupported
from gdbheap.heap import Heap
from gdbheap.machines.machine import LARGEST_SIZE
from gdbheap.targets.target import Target

__all__ = ["MAX_PAD", "ArenaTrim", "Trim", "compared", "trim"]

MAX_PAD = LARGEST_SIZE


def trim(heap: Heap, pad: int = 0) -> Trim:
    """Return what a call of ``malloc_trim(pad)`` would return to the kernel.

    Raises Unsupported if the target has no glibc malloc, or if another allocator serves the program's requests.
    """
    found = heap.allocator(GlibcAllocator)
    other = heap.other_allocator
    serving = [one.title for one in heap.standing_in] or ([other.title] if other is not None else [])
    if found.idle and serving:
        raise Unsupported(
            f"the program uses {' and '.join(serving)} instead of glibc's malloc, so malloc_trim() returns nothing: "
            "'heap' shows how much is free and what returns it, 'heap arenas' where it is"
        )
    return found.predict(pad)


def compared(asked: Trim, before: Heap, after: Target, released: bool) -> Trim:
    """Return the prediction ``asked``, completed with the actual result of the call.

    ``before``: the heap before the call. ``after``: the target after the call. ``released``: whether malloc_trim()
    reported that it released memory.
    """
    sizes = _anonymous(before.target), _anonymous(after)
    arenas = [replace(arena, actual=_shrunk(before, after, arena.index)) for arena in asked.rows]
    actual = sizes[0] - sizes[1] if sizes[0] is not None and sizes[1] is not None else None
    return replace(asked, actual=actual, rows=arenas, rss_before=sizes[0], rss_after=sizes[1], has_released=released)


def _anonymous(target: Target) -> int | None:
    return target.rss.bytes if target.rss.anonymous is None else target.rss.anonymous


def _shrunk(before: Heap, after: Target, index: int) -> int | None:
    """Return by how many resident bytes the heaps of one arena have shrunk after the call; None if residency is
    unknown."""
    old, new = before.target.pages, after.pages
    if old is None or new is None:
        return None
    heaps = [
        (heap.start, heap.reserve) for heap in before.allocator(GlibcAllocator).malloc.heaps if heap.arena == index
    ]
    return sum(old.count(*heap).resident - new.count(*heap).resident for heap in heaps)
