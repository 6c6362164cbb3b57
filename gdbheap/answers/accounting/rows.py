"""The size from which a holder has its own row."""

from __future__ import annotations

__all__ = ["least_of_row"]

# A row needs at least 1/OWN_ROW_SHARE of the bytes in use, and OWN_ROW_BYTES.
OWN_ROW_SHARE, OWN_ROW_BYTES = 50, 64 << 10


def least_of_row(used: int) -> int:
    """Return the smallest size of a row if ``used`` bytes are in use."""
    return max(OWN_ROW_BYTES, used // OWN_ROW_SHARE)
