"""Tables of glibc's dynamic linker whose words lead nowhere: in what they do not fill lie words of the memory's former
owners, and what they name, other structures of the linker hold."""

from __future__ import annotations

from itertools import islice

from gdbheap import _native
from gdbheap.targets.target import Target

__all__ = ["mapping_tables"]

# elf/dl-find_object.c (glibc 2.35 and later), struct dlfo_mappings_segment: previous, to_free, size, allocated. It
# begins at the first multiple of two lines of the cache in its block, to_free: where that begins, in one of eight.
WORD, HEAD, LINE = 8, 32, 128
# Words that may lead to one, and lead on to the next.
MAX_SEGMENTS = 1 << 10
# Words of the linker's static data; it has about a thousand.
MAX_WORDS = 1 << 16


def mapping_tables(target: Target) -> list[int]:
    """Return the addresses of the blocks in which it keeps where objects are mapped, ascending."""
    linkers = [loaded for loaded in target.objects if loaded.is_dynamic_linker]
    data = (place for one in linkers for start, end in one.writable_ranges() for place in range(start, end, WORD))
    words = _native.words_at(target.space, list(islice(data, MAX_WORDS)))
    waiting = {word for word in words if word and word % LINE == 0}
    seen: set[int] = set()
    found: set[int] = set()
    while waiting and len(seen) < MAX_SEGMENTS:
        segment = waiting.pop()
        seen.add(segment)
        head = _native.words_at(target.space, range(segment, segment + HEAD, WORD))
        previous, block, size, allocated = (word or 0 for word in head)
        if segment - LINE < block <= segment and size <= allocated != 0:
            found.add(block)
            waiting |= {previous} - seen - {0}
    return sorted(found)
