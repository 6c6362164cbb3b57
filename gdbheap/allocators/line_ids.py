"""The ids of the ledger's lines, and of the parts of an allocator's memory.

An id is written once, where its line is declared: mypy reports a plain string in place of a line id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NewType

__all__ = ["BREAK_OF_OTHERS", "UNEXPLAINED", "LineId", "PartId", "line_below", "lines_below"]

LineId = NewType("LineId", str)
UNEXPLAINED = LineId("unexplained")
"""Memory of an unknown owner."""
BREAK_OF_OTHERS = LineId("other.break")
"""Memory of ``brk`` that is not malloc's."""
PartId = Literal[
    "used", "free", "cached", "waiting", "top", "header", "padding", "slack", "free run", "muzzy", "reserved",
    "foreign", "unexplained",
]  # fmt: skip
"""The kinds of bytes in an allocator's memory (native/core/src/allocators/part.rs)."""


def line_below(line: LineId, part: str | int) -> LineId:
    """Return the id of a line below ``line``: for a part, for an arena by its index, or for one allocator of
    several."""
    return LineId(f"{line}.{part}")


def lines_below(line: LineId, *parts: str) -> Iterator[LineId]:
    """Yield the ids of lines below ``line``, one for each part."""
    return (line_below(line, part) for part in parts)
