"""The forms in which callers may write sizes, times and targets."""

from __future__ import annotations

import os
import sys
from typing import Union

from gdbheap.errors import UsageError
from gdbheap.report.text.numbers import parse_duration, parse_size

__all__ = ["Seconds", "Size", "Target", "seconds_of", "size_of"]

Size = Union[int, str]
"""Bytes, or a text such as "4096", "64K", "1M" or "1.5G" (powers of 1024)."""
Seconds = Union[int, float, str]
"""Seconds, or a text such as "500ms", "2s" or "10m"."""
Target = Union[int, str, "os.PathLike[str]"]
"""The id of a process, or the path of a core or a snapshot."""
MAX_SECONDS = 1e6


def size_of(value: Size) -> int:
    """Return a size in bytes. Raises UsageError for an invalid one."""
    try:
        found = parse_size(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UsageError(error) from None
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= sys.maxsize:
        raise UsageError(f"{value!r} is not a size: give bytes, or a text such as '64K', '1M' or '1.5G'")
    return found


def seconds_of(value: Seconds) -> float:
    """Return a time in seconds. Raises UsageError for an invalid one."""
    try:
        found = parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UsageError(error) from None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found < MAX_SECONDS:
        raise UsageError(f"{value!r} is not a time: give seconds, or a text such as '500ms', '2s' or '10m'")
    return float(found)
