"""LD_PRELOAD: libraries that the dynamic linker loads before a program's own libraries (ld.so(8))."""

from __future__ import annotations

__all__ = ["PRELOAD", "can_be_preloaded"]

PRELOAD = "LD_PRELOAD"
SEPARATORS = frozenset(" :")


def can_be_preloaded(path: str) -> bool:
    """Return whether LD_PRELOAD can name this path: the path has neither a space nor a colon."""
    return not SEPARATORS & set(path)
