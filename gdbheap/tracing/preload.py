"""LD_PRELOAD: what the dynamic linker loads before a program's own libraries (ld.so(8))."""

from __future__ import annotations

__all__ = ["PRELOAD", "can_be_preloaded"]

PRELOAD = "LD_PRELOAD"
SEPARATORS = frozenset(" :")


def can_be_preloaded(path: str) -> bool:
    """Return whether a path can stand in LD_PRELOAD, which has no way to write a space or a colon."""
    return not SEPARATORS & set(path)
