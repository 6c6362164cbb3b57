"""Assign anonymous memory outside every heap to the library whose static data points to it.

It may be the pool of the library's own allocator, as with Arrow, or its work space, as with OpenBLAS. The assignment
means only that most of the static pointers into the memory are this library's. Pointers of the dynamic linker do not
count: they point to thread blocks and to memory from before malloc existed, both in small mappings that the kernel may
have joined with a neighbour of any size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.targets.ranges import OwnedRange, Ranges, joined
from gdbheap.targets.target import Target

MIN_RANGE_BYTES = 64 << 10


@dataclass(frozen=True)
class Held:
    """The memory to which the static data of one library points; ``path`` is the library's file."""

    path: str
    ranges: Ranges

    @property
    def name(self) -> str:
        """The name of the library's file, without its folder."""
        return self.path.rsplit("/", 1)[-1]


def find_held(target: Target, ranges: Ranges) -> list[Held]:
    """Return those ranges to which one library points more than all others together.

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
    return [Held(target.objects[number].path, found) for number, found in holders.items()]


def _holder(counts: dict[int, int]) -> int | None:
    """Return the number of the object with more than half of the pointers; None if there is none."""
    most = Counter(counts).most_common(1)
    return most[0][0] if most and 2 * most[0][1] > sum(counts.values()) else None


def held_at(held: Sequence[Held], address: int) -> Held | None:
    """Return the entry whose ranges contain ``address``, or None."""
    return next((one for one in held if any(start <= address < end for start, end in one.ranges)), None)
