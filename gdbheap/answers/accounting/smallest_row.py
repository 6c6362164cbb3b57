"""The number of bytes that a holder needs for its own row in an answer."""

from __future__ import annotations

__all__ = ["least_of_row"]

# A row needs at least 1/OWN_ROW_SHARE of the bytes in use, and at least OWN_ROW_BYTES bytes.
OWN_ROW_SHARE, OWN_ROW_BYTES = 50, 64 << 10


def least_of_row(used: int) -> int:
    """Return how many bytes a holder needs for its own row, if ``used`` bytes are in use in total."""
    return max(OWN_ROW_BYTES, used // OWN_ROW_SHARE)
