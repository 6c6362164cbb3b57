"""Find the buffers of glibc's streams, which contain text.

After its text, a buffer has stale words from earlier use of the memory. These words would count as pointers."""

from __future__ import annotations

from gdbheap.errors import Fault
from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.target import Target

__all__ = ["stdio_buffers"]

# The list of all streams, and offsets in struct _IO_FILE (libio/bits/types/struct_FILE.h; the same since glibc 2.1 in
# programs of 64 bits): the ends of the buffer, and the next stream.
LIST = "_IO_list_all"
BUFFER, BUFFER_END, NEXT = 56, 64, 104
MAX_STREAMS, MAX_BUFFER = 5000, 16 << 20


def stdio_buffers(target: Target) -> Ranges:
    """Return the buffers of all streams, ascending; empty without glibc's streams."""
    found: list[tuple[int, int]] = []
    libc = next((loaded for loaded in target.objects if loaded.exported(LIST)), None)
    place = None if libc is None else libc.symbol(LIST)
    seen: set[int] = set()
    try:
        at = 0 if place is None else target.space.word(place)
        while at and at not in seen and len(seen) < MAX_STREAMS:
            seen.add(at)
            start, end = target.space.word(at + BUFFER), target.space.word(at + BUFFER_END)
            if 0 < end - start <= MAX_BUFFER:
                found.append((start, end))
            at = target.space.word(at + NEXT)
    except (Fault, OverflowError):
        return []
    return joined(sorted(found))
