"""Anonymous memory outside every heap, by the library whose static data points to it: the pool of its own allocator,
as with Arrow, or its working space, as with OpenBLAS.

That says no more than this: of the pointers in static data that point into the memory, most are this library's. The
dynamic linker's do not count: they lead to threads' blocks and to what it made before there was a malloc, which are
small mappings that the kernel may have joined with a neighbour of any size.
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
    """Ranges of memory to which the static data of the library in the file ``path`` points."""

    path: str
    ranges: Ranges

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.path.rsplit("/", 1)[-1]


def find_held(target: Target, ranges: Ranges) -> list[Held]:
    """Those of the ``ranges`` (ascending), of MIN_RANGE_BYTES or more, to which one library points more than all others
    together."""
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
    """Who has more than half of the pointers."""
    most = Counter(counts).most_common(1)
    return most[0][0] if most and 2 * most[0][1] > sum(counts.values()) else None


def held_at(held: Sequence[Held], address: int) -> Held | None:
    """The one that has ``address``, or None."""
    return next((one for one in held if any(start <= address < end for start, end in one.ranges)), None)
