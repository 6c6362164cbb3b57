"""The free lists of glibc's malloc: which one a free chunk is on, by its state and size.

Fast bins and thread caches have a list for each size. Bins have one for each size below 0x400 (small) and one for a
range of sizes above (large). A chunk that was just freed waits in the unsorted bin first, which its size does not tell.
"""

from __future__ import annotations

from bisect import bisect_right

# The least size of each of the 63 large bins (malloc/malloc.c, largebin_index_64): spaced by 64 bytes, 512, 4 KiB, 32
# KiB and 256 KiB; the first bin of a new spacing is narrower or wider, where two spacings meet.
LARGE_BINS = [
    *range(0x400, 0xC40, 0x40), 0xC40,
    *range(0xE00, 0x2A00, 0x200), 0x2A00,
    *range(0x3000, 0xB000, 0x1000),
    *range(0x10000, 0x28000, 0x8000), 0x28000,
    0x40000, 0x80000,
]  # fmt: skip


def list_of(state: str, size: int) -> str | None:
    """``small 0x40``, ``large 0x400`` (the least size of the bin), ``fast 0x20``, ``tcache 0x30``; None: on no list."""
    if state == "free":
        place = bisect_right(LARGE_BINS, size)
        return f"large {LARGE_BINS[place - 1]:#x}" if place else f"small {size:#x}"
    return f"{state} {size:#x}" if state in ("fast", "tcache") else None
