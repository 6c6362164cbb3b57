"""The free lists of glibc's malloc: which one a free chunk is on, by its state and size.

Fast bins and thread caches have a list for each size. Bins have one for each size below 0x400 (small) and one for a
range of sizes above (large). A chunk that was just freed waits in the unsorted bin first, which its size does not tell.
"""

from __future__ import annotations

SMALLEST_LARGE = 0x400
# malloc/malloc.c, largebin_index_64: (shift, the largest size >> shift that the bins of this spacing take).
SPACINGS = ((6, 48), (9, 20), (12, 10), (15, 4), (18, 2))


def list_of(state: str, size: int) -> str | None:
    """``small 0x40``, ``large 0x400`` (the least size of the bin), ``fast 0x20``, ``tcache 0x30``; None: on no list."""
    if state == "free":
        return f"small {size:#x}" if size < SMALLEST_LARGE else f"large {_least_of_large_bin(size):#x}"
    return f"{state} {size:#x}" if state in ("fast", "tcache") else None


def _least_of_large_bin(size: int) -> int:
    """The least size that waits in the same large bin as ``size``."""
    least = SMALLEST_LARGE
    for shift, last in SPACINGS:
        if size >> shift <= last:
            return max(least, size >> shift << shift)
        least = max(least, (last + 1) << shift)
    return least
