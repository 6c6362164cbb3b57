"""Split long answers into parts."""

from __future__ import annotations

from gdbheap.errors import UsageError

__all__ = ["MOST", "part"]

MOST = 16_000
"""The most bytes of an answer."""
# The bytes of the line about the rest.
ROOM = 100


def part(text: str, offset: int) -> str:
    """Return the text from the character ``offset`` on, at most MOST bytes of it, and how to ask for the rest. Raises
    UsageError for an invalid offset."""
    if not 0 <= offset <= len(text):
        raise UsageError(f"offset: at most {len(text)} here")
    rest = text[offset:]
    if len(rest.encode()) <= MOST:
        return rest
    shown = rest.encode()[: MOST - ROOM].decode("utf-8", "ignore")
    shown = shown[: shown.rfind("\n") + 1] or shown
    left = len(rest) - len(shown)
    return f"{shown}({left:,} more characters: ask again with offset={offset + len(shown)}, or for fewer rows with top)"
