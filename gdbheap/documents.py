"""Read JSON, numbers and strings from untrusted files.

Numbers that gdbheap never writes and documents that are nested too deeply raise ValueError. Long strings are cut.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = [
    "MAX_TEXT", "NODE_BYTES", "bounded", "finite", "is_time", "parsed", "renamed_keys", "whole", "with_own_bytes",
]  # fmt: skip

# The most characters of a 64-bit integer; int() takes quadratic time for thousands of digits.
MAX_DIGITS = 20
LEAST, BEYOND = -(1 << 63), 1 << 64
# The bytes of Python's smallest container and of the pointer to it. Two characters of a document ("[]," or "0,") may
# become a container and a pointer.
NODE_BYTES = 72
# The year 3000. A plot's axis also has dates after the last moment, and datetime ends with the year 9999.
END_OF_TIME = 32_503_680_000
# The most characters of a string. A path has fewer bytes (PATH_MAX of Linux), and names of C++ and Rust are not longer.
MAX_TEXT, CUT = 4096, "…"


def parsed(text: str | bytes) -> Any:
    """Return the parsed JSON document.

    Raises ValueError if ``text`` is not JSON, or is nested too deeply for Python. Raises ValueError also if ``whole``
    or ``finite`` refuses a number.
    """
    try:
        return json.loads(text, parse_int=whole, parse_float=finite, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def whole(text: str) -> int:
    """Return the integer in a text. Raises ValueError if it does not fit into 64 bits, signed or unsigned."""
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits")
    found = int(text)
    if not LEAST <= found < BEYOND:
        raise ValueError(f"{text} has more than 64 bits")
    return found


def finite(text: str) -> float:
    """Return the number in a text. Raises ValueError for infinity."""
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:MAX_DIGITS]} is too large a number")
    return found


def bounded(text: str) -> str:
    """Return the text; if it is longer than MAX_TEXT, only its beginning."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - len(CUT)] + CUT


def is_time(seconds: float) -> bool:
    """Return whether a number of seconds after 1970 is a date that gdbheap accepts: one before the year 3000."""
    return 0 <= seconds < END_OF_TIME


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def renamed_keys(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a record with its keys renamed. ``names`` maps older key names to newer ones.

    If the record also has a key with the newer name, that key's value stays.
    """
    return {
        **{key: value for key, value in content.items() if key not in names or names[key] in content},
        **{new: content[old] for old, new in names.items() if old in content and new not in content},
    }


def with_own_bytes(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row ``content`` about objects. If it is from an older file, its keys are changed to today's.

    ``own`` is the number of bytes of the objects' own blocks; ``bytes`` also includes their buffers. Raises TypeError
    if the older values are not numbers.
    """
    if "own" in content or "bytes" not in content:
        return content
    own, buffers = content["bytes"], content.get("buffers", 0)
    return {**content, "own": own, "bytes": own + buffers}
