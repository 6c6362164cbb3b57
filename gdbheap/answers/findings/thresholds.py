"""malloc's thresholds in force, in words."""

from __future__ import annotations

from gdbheap.allocators.glibc.locate import MallocPar
from gdbheap.words import size_text

# glibc malloc/malloc.c: DEFAULT_MMAP_THRESHOLD_MIN and DEFAULT_TRIM_THRESHOLD.
DEFAULT = 128 << 10

MMAPPED_AGAIN = (
    "start the program with MALLOC_MMAP_THRESHOLD_=131072, or call mallopt(M_MMAP_THRESHOLD, 131072): either keeps the "
    "threshold from rising"
)


def how(par: MallocPar, value: int) -> str:
    """How a threshold came to its value."""
    if not par.dynamic:
        return "set"
    return "risen with the mmapped chunks that were freed" if value > DEFAULT else "the default"


def trim_threshold(par: MallocPar) -> str:
    """The trim threshold in force."""
    return f"{size_text(par.trim_threshold)} ({how(par, par.trim_threshold)})"


def mmap_threshold(par: MallocPar) -> str:
    """The mmap threshold in force."""
    return f"{size_text(par.mmap_threshold)} ({how(par, par.mmap_threshold)})"
