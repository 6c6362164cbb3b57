"""The ids of the ledger's lines, and the names of the parts of an allocator's memory.

Each id is written only once, where its line is declared: mypy reports a plain string in place of a line id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NewType

__all__ = ["BREAK_OF_OTHERS", "UNEXPLAINED", "LineId", "PartId", "line_below", "lines_below"]

LineId = NewType("LineId", str)
UNEXPLAINED = LineId("unexplained")
"""Memory whose owner is unknown."""
BREAK_OF_OTHERS = LineId("other.break")
"""Memory that the program got from ``brk`` without malloc."""
PartId = Literal[
    "used", "free", "cached", "waiting", "top", "header", "padding", "slack", "free run", "muzzy", "reserved",
    "foreign", "unexplained",
]  # fmt: skip
"""The kinds of bytes in an allocator's memory (native/core/src/allocators/part.rs)."""


def line_below(line: LineId, part: str | int) -> LineId:
    """Return the id of a child of ``line``. ``part``: the name of a part, the index of an arena, or the index of an
    allocator."""
    return LineId(f"{line}.{part}")


def lines_below(line: LineId, *parts: str) -> Iterator[LineId]:
    """Yield the ids of children of ``line``, one id for each name or index in ``parts``."""
    return (line_below(line, part) for part in parts)
