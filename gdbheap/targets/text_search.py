"""Search the mapped files of a target for a pattern."""

from __future__ import annotations

import re

from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import backed_pieces
from gdbheap.targets.target import Target

WINDOW, OVERLAP = 4 << 20, 96
# A target may map any size, as a sparse file costs nothing.
MAX_BYTES = 512 << 20


def mentions(target: Target, loaded: LoadedObject, pattern: re.Pattern[bytes]) -> bool:
    """Return whether a pattern matches in the first MAX_BYTES of an object's readable mappings.

    A match longer than OVERLAP bytes may be missed.
    """
    left = MAX_BYTES
    for mapping in filter(lambda one: one.readable, loaded.mappings):
        end = min(mapping.end, mapping.start + left)
        if any(pattern.search(raw) for _at, raw in backed_pieces(target.space, mapping.start, end, WINDOW, OVERLAP)):
            return True
        left -= min(left, mapping.size)
    return False
