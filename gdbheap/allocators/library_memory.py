"""Assign anonymous memory outside every heap to the library whose static data points to it.

The memory may be the pool of the library's own allocator (Arrow) or the library's work space (OpenBLAS). The assignment
means only that most of the static pointers into the memory are in this library. Pointers of the dynamic linker do not
count: they point to thread blocks and to memory that the linker took before malloc was available. Thread blocks and
such memory lie in small mappings, which the kernel may have joined with a neighbour of any size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.targets.ranges import OwnedRange, Ranges, joined
from gdbheap.targets.target import Target

MIN_RANGE_BYTES = 64 << 10


@dataclass(frozen=True)
class LibraryMemory:
    """The memory to which one library's static data points; ``path`` is the library's file, and ``sources`` are the
    ranges of its static data.
    """

    path: str
    ranges: Ranges
    sources: Ranges

    @property
    def name(self) -> str:
        """The name of the library's file, without the folder."""
        return self.path.rsplit("/", 1)[-1]


def find_held(target: Target, ranges: Ranges) -> list[LibraryMemory]:
    """Return the ranges to which one library points more often than all others together, grouped by library.

    ``ranges`` is ascending; ranges below MIN_RANGE_BYTES are skipped."""
    large = [(start, end) for start, end in joined(ranges) if end - start >= MIN_RANGE_BYTES]
    sources = [
        OwnedRange(number, *pair)
        for number, loaded in enumerate(target.objects)
        if not loaded.is_dynamic_linker
        for pair in loaded.writable_ranges()
    ]
    counts = _native.count_pointers(target.space, sources, large) if large else []
    holders: dict[int, Ranges] = {}
    for place, pair in enumerate(large):
        holder = _holder({row.number: row.words for row in counts if row.place == place})
        if holder is not None:
            holders.setdefault(holder, []).append(pair)
    objects = target.objects
    return [
        LibraryMemory(objects[number].path, found, objects[number].writable_ranges())
        for number, found in holders.items()
    ]


def _holder(counts: dict[int, int]) -> int | None:
    """Return the number of the loaded object that has more than half of the pointers; None if there is none.

    ``counts``: the number of pointers by the number of the object.
    """
    most = Counter(counts).most_common(1)
    return most[0][0] if most and 2 * most[0][1] > sum(counts.values()) else None


def held_at(held: Sequence[LibraryMemory], address: int) -> LibraryMemory | None:
    """Return the entry of ``held`` whose ranges contain ``address``, or None."""
    return next((one for one in held if any(start <= address < end for start, end in one.ranges)), None)
