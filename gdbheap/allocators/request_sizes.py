"""The sizes of requests that get a block of a given size, for each kind of malloc.

Each function returns (least, most): the smallest and the largest request in bytes. The ranges are those of malloc();
blocks of aligned_alloc() may be larger."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from gdbheap.machines.machine import Machine

__all__ = ["of_chunk", "of_class", "of_old_chunk", "of_slot", "of_span"]

# Size classes are multiples of QUANTUM up to EVEN bytes. Above, there are STEPS classes from each power of two to the
# next. The smallest class has half a quantum.
QUANTUM, EVEN, STEPS = 16, 128, 4
# tcmalloc: larger requests get whole pages (common.h, kMaxSize).
MAX_OF_CLASS = 256 << 10
# musl's mallocng: slots are multiples of UNIT, and IN_BAND bytes at their end are not for the program (meta.h).
UNIT, IN_BAND = 16, 4
# The sizes of mallocng's slots in units (malloc.c, size_classes).
SLOTS = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255, 292,
    340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
)  # fmt: skip
# The classes with odd numbers in this range also serve the requests of the class below, while there are few blocks.
# Class 7 does not (malloc.c, "use coarser size classes initially").
FIRST_COARSE, LAST_COARSE, NEVER_COARSE = 5, 31, 7
# musl's malloc before 1.2.1: chunks are multiples of ALIGN with a header of two words. Larger chunks are mapped
# (malloc_impl.h, SIZE_ALIGN, MMAP_THRESHOLD).
ALIGN, MAPPED = 32, 224 << 10


def of_chunk(machine: Machine, size: int, is_mapped: bool, page: int) -> tuple[int, int]:
    """Return the smallest and the largest request that glibc serves with a chunk of ``size`` bytes, header included
    (malloc.c, request2size).

    ``is_mapped``: whether the chunk has a mapping of its own. ``page``: the size of such a mapping is a multiple of
    this number of bytes."""
    word = machine.word
    if is_mapped:
        return max(0, size - page - 3 * word + 1), size - 3 * word
    return 0 if size <= 4 * word else size - 3 * word + 1, size - word


def of_class(size: int, page: int = 0) -> tuple[int, int]:
    """Return the smallest and the largest request that jemalloc or mimalloc serves with a block of ``size`` bytes.

    ``page``: the size of a block that has no size class is a multiple of this number of bytes; 0 if unknown."""
    below = _class_below(size)
    if page and size > EVEN and _class_below(size + 1) != size:
        below = max(below, size - page)
    return below + 1, size


def _class_below(size: int) -> int:
    """Return the largest size of a class below ``size``; 0 if there is none."""
    if size <= QUANTUM:
        return QUANTUM // 2 if size > QUANTUM // 2 else 0
    step = QUANTUM if size <= EVEN else (1 << ((size - 1).bit_length() - 1)) // STEPS
    return (size - 1) // step * step


def of_span(size: int, page: int, others: Iterable[int]) -> tuple[int, int]:
    """Return the smallest and the largest request that tcmalloc serves with a block of ``size`` bytes.

    ``others``: sizes of classes that exist. Neighbouring classes differ by at most a quarter, for two reasons. tcmalloc
    wastes at most an eighth of a block and at most an eighth of a span. It also joins classes that have the same number
    of blocks in a span (common.cc, SizeMap::Init)."""
    if size > MAX_OF_CLASS:
        return max(MAX_OF_CLASS, size - page) + 1, size
    least = max(0, size - max(QUANTUM, size // 4))
    return max([least, *(other for other in others if other < size)]) + 1, size


def of_slot(machine: Machine, size: int) -> tuple[int, int]:
    """Return the smallest and the largest request that musl's mallocng serves with a slot of ``size`` bytes.

    A slot that is alone in its mapping has the size of the mapping, which is the request rounded up to whole pages."""
    most = size - IN_BAND
    place = bisect_left(SLOTS, -(-size // UNIT))
    if place < len(SLOTS) and SLOTS[place] * UNIT == size:
        is_coarse = FIRST_COARSE <= place <= LAST_COARSE and place % 2 == 1 and place != NEVER_COARSE
        below = place - 2 if is_coarse else place - 1
        return SLOTS[below] * UNIT - IN_BAND + 1 if below >= 0 else 0, most
    return max(SLOTS[place - 1] * UNIT - IN_BAND, most - machine.page) + 1, most


def of_old_chunk(machine: Machine, size: int) -> tuple[int, int]:
    """Return the smallest and the largest request that musl's malloc before 1.2.1 serves with a chunk of ``size``
    bytes, header included (malloc.c, adjust_size)."""
    header = 2 * machine.word
    if size >= MAPPED and machine.is_paged(size + header):
        return max(0, size - machine.page - ALIGN + 1), size - ALIGN
    return max(0, size - header - ALIGN + 1), size - header
