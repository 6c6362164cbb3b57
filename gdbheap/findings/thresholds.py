"""malloc's thresholds in force, and how they came to their values."""

from __future__ import annotations

from gdbheap.allocators.glibc.locate import MallocPar

# glibc malloc/malloc.c: DEFAULT_MMAP_THRESHOLD_MIN and DEFAULT_TRIM_THRESHOLD.
DEFAULT_THRESHOLD = 128 << 10
SET, RISEN, DEFAULT = "set", "risen", "default"


def origin(par: MallocPar, value: int) -> str:
    """How a threshold came to its value: it was set, it has risen with the mmapped chunks that were freed, or it is
    the default."""
    if not par.dynamic:
        return SET
    return RISEN if value > DEFAULT_THRESHOLD else DEFAULT
