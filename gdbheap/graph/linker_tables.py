"""Find tables of glibc's dynamic linker whose words are not references.

The unused part of such a table still has words from earlier uses of the memory. Other structures of the linker keep
alive everything to which the used part points, so no reference is lost when the table is ignored.
"""

from __future__ import annotations

from itertools import islice

from gdbheap import _native
from gdbheap.targets.target import Target

__all__ = ["mapping_tables"]

# elf/dl-find_object.c (glibc 2.35 and later), struct dlfo_mappings_segment: previous, to_free, size, allocated. A
# segment begins at the first multiple of LINE bytes (two cache lines) in its block; to_free is the block's address.
WORD, HEAD, LINE = 8, 32, 128
# The most words that are tried as segments; each segment points to the previous one.
MAX_SEGMENTS = 1 << 10
# The most words of the linker's static data that are searched; it has about a thousand.
MAX_WORDS = 1 << 16


def mapping_tables(target: Target) -> list[int]:
    """Return the addresses of the blocks in which the dynamic linker records the mappings of loaded objects,
    ascending."""
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
