"""Find the environment variable from which a jemalloc reads its settings at program start.

Builds may put a prefix before its name (``configure --with-jemalloc-prefix``): ``JE_ARROW_MALLOC_CONF`` in Arrow,
``_RJEM_MALLOC_CONF`` in Rust. The name is a string in the module's read-only data (``JEMALLOC_CPREFIX"MALLOC_CONF"``,
jemalloc.c)."""

from __future__ import annotations

import re

from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.target import Target

PLAIN = "MALLOC_CONF"
NAME = re.compile(rb"(?<![0-9A-Za-z_.])([A-Z_]{0,32}MALLOC_CONF)\0")
# The bytes that are read at once, the most bytes that are read of a module, and the overlap of two reads in bytes.
#
# Reads overlap because the name may cross the boundary between two reads.
PIECE, MAX_BYTES, AGAIN = 4 << 20, 256 << 20, 64


def variable_of(target: Target, loaded: LoadedObject) -> str | None:
    """Return the name of the environment variable for the jemalloc in ``loaded``; None if it was not found."""
    left = MAX_BYTES
    for mapping in loaded.mappings:
        if mapping.writable or not mapping.readable:
            continue
        end = min(mapping.end, mapping.start + left)
        left -= end - mapping.start
        for start in range(mapping.start, end, PIECE):
            begin = max(mapping.start, start - AGAIN)
            found = NAME.search(target.space.read_available(begin, min(start + PIECE, end) - begin))
            if found is not None:
                return found.group(1).decode()
    return None
