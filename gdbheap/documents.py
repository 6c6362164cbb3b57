"""JSON, numbers and texts from files that anybody may have written.

A number that gdbheap would not write, and a document that cannot be followed to its end, raise ValueError. Texts are
cut."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = [
    "MAX_TEXT", "NODE_BYTES", "bounded", "finite", "is_time", "parsed", "renamed_keys", "whole", "with_own_bytes",
]  # fmt: skip

# Signs of an integer of 64 bits and a sign; quadratic time begins at thousands.
MAX_DIGITS = 20
LEAST, BEYOND = -(1 << 63), 1 << 64
# Python's smallest container and the place that points to it: what two signs of a document ("[]," or "0,") may become.
NODE_BYTES = 72
# The year 3000: what is drawn beside the last moment needs dates too, and datetime has none behind the year 9999.
END_OF_TIME = 32_503_680_000
# A path has fewer bytes (PATH_MAX of Linux), a name of C++ or Rust no more.
MAX_TEXT, CUT = 4096, "…"


def parsed(text: str | bytes) -> Any:
    """The document. Raises ValueError where it is none, is nested deeper than Python follows, or has such a number."""
    try:
        return json.loads(text, parse_int=whole, parse_float=finite, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def whole(text: str) -> int:
    """Return an integer of 64 bits, with a sign or without. Raises ValueError for a larger one."""
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits")
    found = int(text)
    if not LEAST <= found < BEYOND:
        raise ValueError(f"{text} has more than 64 bits")
    return found


def finite(text: str) -> float:
    """The number, which is no infinity. Raises ValueError."""
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:MAX_DIGITS]} is too large a number")
    return found


def bounded(text: str) -> str:
    """Return the text, of one that is longer than MAX_TEXT the beginning."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - len(CUT)] + CUT


def is_time(seconds: float) -> bool:
    """Return whether a date lies that many seconds after 1970."""
    return 0 <= seconds < END_OF_TIME


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def renamed_keys(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The record with its keys by their new names, ``names`` by the older ones. What has a new one keeps it."""
    return {
        **{key: value for key, value in content.items() if key not in names or names[key] in content},
        **{new: content[old] for old, new in names.items() if old in content and new not in content},
    }


def with_own_bytes(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of objects with the bytes of their own blocks and all bytes. Raises TypeError for what are no numbers."""
    if "own" in content or "bytes" not in content:
        return content
    own, buffers = content["bytes"], content.get("buffers", 0)
    return {**content, "own": own, "bytes": own + buffers}
