"""Check and convert the arguments of the library, such as sizes, times and targets."""

from __future__ import annotations

import operator
import os
import sys
from typing import Any, Union

from gdbheap.errors import UsageError
from gdbheap.machines.machine import LARGEST_ADDRESS
from gdbheap.report.text.numbers import parse_duration, parse_size

__all__ = ["Seconds", "Size", "Target", "address_of", "count_of", "pid_of", "seconds_of", "size_of", "word_of"]

Size = Union[int, str]
"""A size: a number of bytes, or a string such as "4096", "64K", "1M" or "1.5G" (powers of 1024)."""
Seconds = Union[int, float, str]
"""A time: a number of seconds, or a string such as "500ms", "2s" or "10m"."""
Target = Union[int, str, "os.PathLike[str]"]
"""The target to open: the id of a process, or the path of a core or a snapshot."""
MAX_SECONDS = 1e6


def size_of(value: Size) -> int:
    """Return the size ``value`` in bytes. Raises UsageError if it is not a size."""
    try:
        found = parse_size(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UsageError(error) from None
    return _within(
        found, sys.maxsize, f"{value!r} is not a size: give bytes, or a string such as '64K', '1M' or '1.5G'"
    )


def count_of(value: int | None) -> int | None:
    """Return ``value`` if it is a number of rows, or None, which means all rows. Raises UsageError otherwise."""
    return None if value is None else _within(value, sys.maxsize, f"{value!r} is not a number of rows")


def address_of(value: int) -> int:
    """Return ``value`` if it may be an address. Raises UsageError otherwise."""
    return _within(value, LARGEST_ADDRESS, f"{value!r} is not an address: give an integer, such as 0x7f0000001230")


def pid_of(value: int) -> int:
    """Return ``value``, the id of a process, as an int. Raises UsageError if it is not an integer."""
    found = _integer(value)
    if found is None:
        raise UsageError(f"{value!r} is not a target: give the id of a process, or the path of a core or a snapshot")
    return found


def word_of(value: str) -> str:
    """Return ``value`` if it is a string. Raises UsageError otherwise."""
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is not a text")
    return value


def _within(value: Any, most: int, refusal: str) -> int:
    """Return ``value`` if it is an integer from 0 to ``most``. Otherwise raises UsageError with ``refusal``."""
    found = _integer(value)
    if found is None or not 0 <= found <= most:
        raise UsageError(refusal)
    return found


def _integer(value: Any) -> int | None:
    """Return an integer of any type, such as numpy's, as an int of Python; None if ``value`` is not an integer."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def seconds_of(value: Seconds) -> float:
    """Return the time ``value`` in seconds. Raises UsageError if it is not a time."""
    try:
        found = parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UsageError(error) from None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found < MAX_SECONDS:
        raise UsageError(f"{value!r} is not a time: give seconds, or a string such as '500ms', '2s' or '10m'")
    return float(found)
