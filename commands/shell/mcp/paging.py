"""Long answers in parts."""

from __future__ import annotations

from gdbheap.errors import UsageError

__all__ = ["MOST", "part"]

MOST = 16_000
"""The most bytes of an answer."""
# What the line about the rest takes.
ROOM = 100


def part(text: str, offset: int) -> str:
    """Return what follows the character ``offset`` of a text, at most MOST bytes of it, and how to ask for the rest.
    Raises UsageError for an offset that is none."""
    if not 0 <= offset <= len(text):
        raise UsageError(f"offset: at most {len(text)} here")
    rest = text[offset:]
    if len(rest.encode()) <= MOST:
        return rest
    shown = rest.encode()[: MOST - ROOM].decode("utf-8", "ignore")
    shown = shown[: shown.rfind("\n") + 1] or shown
    left = len(rest) - len(shown)
    return f"{shown}({left:,} more characters: ask again with offset={offset + len(shown)}, or for fewer rows with top)"
