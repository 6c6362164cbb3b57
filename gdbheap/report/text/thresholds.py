"""malloc's thresholds in force, in words."""

from __future__ import annotations

from gdbheap.findings.thresholds import DEFAULT, OWN, RISEN, SET
from gdbheap.report.text.numbers import size_text

ORIGINS = {
    SET: "set",
    RISEN: "risen with the mmapped chunks that were freed",
    DEFAULT: "the default",
    OWN: "set by the program itself",
}
OWN_CALL = (
    "let the program call mallopt({0}, 131072) where it sets that threshold itself: no variable counts against it"
)
MMAPPED_AGAIN = (
    "start the program with MALLOC_MMAP_THRESHOLD_=131072, or call mallopt(M_MMAP_THRESHOLD, 131072): either keeps the "
    "threshold from rising"
)


def mmapped_again(origin: str) -> str:
    """What gives large buffers mappings of their own again."""
    return OWN_CALL.format("M_MMAP_THRESHOLD") if origin == OWN else MMAPPED_AGAIN


def threshold_text(value: int, origin: str) -> str:
    """A threshold, and how it came to its value."""
    return f"{size_text(value)} ({ORIGINS[origin]})"
