"""The ids of the ledger's lines, and of the parts of an allocator's memory.

An id is written once, where its line is declared: a mere text is an error of mypy's where a line is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NewType

__all__ = ["BREAK_OF_OTHERS", "UNEXPLAINED", "LineId", "PartId", "line_below", "lines_below"]

LineId = NewType("LineId", str)
UNEXPLAINED = LineId("unexplained")
"""What nobody can say whose it is."""
BREAK_OF_OTHERS = LineId("other.break")
"""Memory of ``brk`` that is not malloc's."""
PartId = Literal[
    "used", "free", "cached", "waiting", "top", "header", "padding", "slack", "free run", "muzzy", "reserved",
    "foreign", "unexplained",
]  # fmt: skip
"""What bytes of an allocator are (native/core/src/allocators/part.rs)."""


def line_below(line: LineId, part: str | int) -> LineId:
    """Return the id of a line below another: of a part, of an arena by its index, or of one allocator of several."""
    return LineId(f"{line}.{part}")


def lines_below(line: LineId, *parts: str) -> Iterator[LineId]:
    """Yield the ids of lines below another."""
    return (line_below(line, part) for part in parts)
