"""Texts in the files that a target has mapped."""

from __future__ import annotations

import re
from contextlib import suppress

from gdbheap.errors import Fault
from gdbheap.target.elf import LoadedObject
from gdbheap.target.ranges import backed_windows
from gdbheap.target.target import Target

WINDOW, OVERLAP = 4 << 20, 96
# A mapping is as large as its target likes: a file of holes costs nothing.
MAX_BYTES = 512 << 20


def mentions(target: Target, loaded: LoadedObject, pattern: re.Pattern[bytes]) -> bool:
    """Return whether the first MAX_BYTES of an object's readable mappings hold the pattern, at most OVERLAP bytes."""
    left = MAX_BYTES
    for mapping in filter(lambda one: one.readable, loaded.mappings):
        end = min(mapping.end, mapping.start + left)
        for start in backed_windows(target.space, mapping.start, end, WINDOW):
            with suppress(Fault):
                if pattern.search(target.space.read_available(start, min(WINDOW + OVERLAP, mapping.end - start))):
                    return True
        left -= min(left, mapping.size)
    return False
