"""From which size on a holder has a row of its own."""

from __future__ import annotations

__all__ = ["least_of_row"]

# So much of what is in use, and so many bytes, at least.
OWN_ROW_SHARE, OWN_ROW_BYTES = 50, 64 << 10


def least_of_row(used: int) -> int:
    """Return the smallest size of a row where ``used`` bytes are in use."""
    return max(OWN_ROW_BYTES, used // OWN_ROW_SHARE)
