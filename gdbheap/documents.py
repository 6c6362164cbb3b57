"""Read JSON, numbers and texts from files that anybody may have written.

ValueError is raised for a number that gdbheap would not write, and for a document that is nested too deeply. Long texts
are cut.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = [
    "MAX_TEXT", "NODE_BYTES", "bounded", "finite", "is_time", "parsed", "renamed_keys", "whole", "with_own_bytes",
]  # fmt: skip

# The characters of a signed 64-bit integer; int() takes quadratic time from thousands of digits on.
MAX_DIGITS = 20
LEAST, BEYOND = -(1 << 63), 1 << 64
# Bytes of Python's smallest container and of the pointer to it: two characters of a document ("[]," or "0,") may become
# both.
NODE_BYTES = 72
# The year 3000. Axes also draw dates after the last moment, and datetime ends with the year 9999.
END_OF_TIME = 32_503_680_000
# A path has fewer bytes (PATH_MAX of Linux), and no name of C++ or Rust has more.
MAX_TEXT, CUT = 4096, "…"


def parsed(text: str | bytes) -> Any:
    """Return the parsed JSON document. Raises ValueError if it is no JSON, is nested deeper than Python can follow, or
    has a number that ``whole`` or ``finite`` refuses."""
    try:
        return json.loads(text, parse_int=whole, parse_float=finite, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def whole(text: str) -> int:
    """Return a 64-bit integer, signed or unsigned. Raises ValueError for a larger one."""
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits")
    found = int(text)
    if not LEAST <= found < BEYOND:
        raise ValueError(f"{text} has more than 64 bits")
    return found


def finite(text: str) -> float:
    """Return a finite number. Raises ValueError for infinity."""
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:MAX_DIGITS]} is too large a number")
    return found


def bounded(text: str) -> str:
    """Return the text, or the beginning of one that is longer than MAX_TEXT."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - len(CUT)] + CUT


def is_time(seconds: float) -> bool:
    """Return whether a number of seconds after 1970 is a date (before the year 3000)."""
    return 0 <= seconds < END_OF_TIME


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def renamed_keys(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a record with its keys renamed; ``names`` maps older names to new ones. A key that is there by its new
    name keeps its value."""
    return {
        **{key: value for key, value in content.items() if key not in names or names[key] in content},
        **{new: content[old] for old, new in names.items() if old in content and new not in content},
    }


def with_own_bytes(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row of objects of an older file with ``own``, the bytes of their own blocks, and with ``bytes``, which
    then includes their buffers. Raises TypeError if these are no numbers."""
    if "own" in content or "bytes" not in content:
        return content
    own, buffers = content["bytes"], content.get("buffers", 0)
    return {**content, "own": own, "bytes": own + buffers}
