"""Sentences about malloc's mmap and trim thresholds: their values, where these come from, and how to set them."""

from __future__ import annotations

from gdbheap.findings.thresholds import DEFAULT, OWN, RISEN, SET
from gdbheap.report.text.numbers import size_text

ORIGINS = {
    SET: "set",
    RISEN: "raised when a large block was freed",
    DEFAULT: "the default",
    OWN: "set by the program itself",
}
OWN_CALL = (
    "let the program call mallopt({0}, 131072) at the place where it sets that threshold: this call overrides "
    "environment variables"
)
MMAPPED_AGAIN = (
    "start the program with MALLOC_MMAP_THRESHOLD_=131072, or call mallopt(M_MMAP_THRESHOLD, 131072): either fixes the "
    "threshold"
)


def mmapped_again(origin: str) -> str:
    """Return the advice that makes malloc map large blocks separately again. ``origin``: how the threshold got its
    value."""
    return OWN_CALL.format("M_MMAP_THRESHOLD") if origin == OWN else MMAPPED_AGAIN


def kept_because(value: int, origin: str) -> str:
    """Return the end of a sentence about the mmap threshold: "rose to 31.0 MiB when a large block was freed", or "is"
    with its value.
    """
    if origin == RISEN:
        return f"rose to {size_text(value)} when a large block was freed"
    return f"is {threshold_text(value, origin)}"


def threshold_text(value: int, origin: str) -> str:
    """Return a threshold as text, with the origin of its value: "128.0 KiB (the default)"."""
    return f"{size_text(value)} ({ORIGINS[origin]})"
