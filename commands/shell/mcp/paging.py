"""Split long answers into parts of at most MOST bytes."""

from __future__ import annotations

from gdbheap.errors import UsageError

__all__ = ["MOST", "part"]

MOST = 16_000
"""The largest part of an answer that is sent at once, in bytes."""
# The bytes kept free for the line about the next part.
ROOM = 100


def part(text: str, offset: int) -> str:
    """Return a part of a text with at most MOST bytes. The part begins at the character ``offset``. A last line says
    how to get the next part. Raises UsageError for an invalid offset."""
    if not 0 <= offset <= len(text):
        raise UsageError(f"offset must be at most {len(text)} for this answer")
    rest = text[offset:]
    if len(rest.encode()) <= MOST:
        return rest
    shown = rest.encode()[: MOST - ROOM].decode("utf-8", "ignore")
    shown = shown[: shown.rfind("\n") + 1] or shown
    left = len(rest) - len(shown)
    return f"{shown}({left:,} more characters: ask again with offset={offset + len(shown)}, or with a smaller top)"
