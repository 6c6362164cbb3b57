"""What would ``malloc_trim()`` give back, and what came of it?"""

from __future__ import annotations

from dataclasses import replace

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.glibc.trim import ArenaTrim, Trim
from gdbheap.heap import Heap
from gdbheap.machines.machine import LARGEST_SIZE
from gdbheap.targets.target import Target

__all__ = ["MAX_PAD", "ArenaTrim", "Trim", "compared", "trim"]

MAX_PAD = LARGEST_SIZE


def trim(heap: Heap, pad: int = 0) -> Trim:
    """What ``malloc_trim(pad)`` would give back. Raises Unsupported without glibc's malloc."""
    return heap.allocator(GlibcAllocator).predict(pad)


def compared(asked: Trim, before: Heap, after: Target, released: bool) -> Trim:
    """``asked`` beside what happened: the target as it was and as it is after the call."""
    sizes = _anonymous(before.target), _anonymous(after)
    arenas = [replace(arena, actual=_shrunk(before, after, arena.index)) for arena in asked.arenas]
    actual = sizes[0] - sizes[1] if sizes[0] is not None and sizes[1] is not None else None
    return replace(asked, actual=actual, arenas=arenas, before=sizes[0], after=sizes[1], released=released)


def _anonymous(target: Target) -> int | None:
    return target.rss.bytes if target.rss.anonymous is None else target.rss.anonymous


def _shrunk(before: Heap, after: Target, index: int) -> int | None:
    """By how much the resident memory of one arena's heaps shrank."""
    old, new = before.target.pages, after.pages
    if old is None or new is None:
        return None
    heaps = [
        (heap.start, heap.reserve) for heap in before.allocator(GlibcAllocator).malloc.heaps if heap.arena == index
    ]
    return sum(old.count(*heap).resident - new.count(*heap).resident for heap in heaps)
