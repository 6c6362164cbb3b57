"""Find the modules whose copies of an allocator own the memory of a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gdbheap.allocators.allocator import Allocator


def largest_first(allocator: Allocator, counted: Iterable[tuple[tuple[int, int], int]]) -> list[str]:
    """Return the modules whose copies of the allocator own the ranges, the module with the most bytes first.
    ``counted``: each range with the number of its bytes to count."""
    sums: Counter[str] = Counter()
    for (start, _end), size in counted:
        owner = allocator.owner_at(start) if size else None
        if owner is not None:
            sums[owner] += size
    return [owner for owner, _size in sums.most_common()]
