"""Find the owner of memory that a library mapped itself: the library's static variable that points there."""

from __future__ import annotations

from collections import Counter

from gdbheap import _native
from gdbheap.allocators.library_memory import LibraryMemory
from gdbheap.graph.roots import variable_at
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.target import Target

__all__ = ["variable_of"]

# The most runs of pointers that are named.
MAX_RUNS = 64


def variable_of(target: Target, held: LibraryMemory, ranges: Ranges) -> str | None:
    """Return the name of the library's static variable that points into ``ranges`` most often, with the library's name.

    Only pointers into the largest of the ranges are counted. None if there are no such pointers, or if no symbol covers
    them."""
    low, high = max(ranges, key=lambda pair: pair[1] - pair[0], default=(0, 0))
    runs = _native.find_pointer_runs(target.space, held.sources, low, high, MAX_RUNS) if low < high else []
    words: Counter[str] = Counter()
    for start, end in runs:
        found = variable_at(target, start)
        words[found[0] if found else ""] += end - start
    name, _count = max(words.items(), key=lambda row: (row[1], row[0]), default=("", 0))
    return name or None
