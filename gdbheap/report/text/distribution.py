"""Print a table of calls by size, with a bar for each power of two, like DTrace's ``quantize``.

The row with the most calls has the longest bar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import count_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, table

if TYPE_CHECKING:
    from gdbheap.answers.distribution import SizeShare

__all__ = ["render"]

BAR = 40
ASCII_BAR = "@"
# Bars from an eighth of a character to a full character.
EIGHTHS = "▏▎▍▌▋▊▉█"


def render(rows: Sequence[SizeShare], style: Style, nothing: str = "No calls were made.") -> str:
    """Return a row for each power of two, with a bar for its calls, and the total. Return ``nothing`` if there are no
    rows."""
    if not rows:
        return style.filled(nothing)
    columns = (Column("from"), Column("below"), Column("distribution of calls", True), Column("calls"), Column("bytes"))
    calls, size = sum(row.calls for row in rows), sum(row.bytes for row in rows)
    longest = max(row.calls for row in rows)
    body = [
        [style.size(row.start), style.size(row.end), bar(row.calls, longest, style), count_text(row.calls),
         style.size(row.bytes)]
        for row in rows
    ]  # fmt: skip
    return table(columns, body, style, ["", "", "total", count_text(calls), style.size(size)])


def bar(part: int, whole: int, style: Style, width: int = BAR) -> str:
    """Return a bar whose length is ``part`` of ``whole``, at most ``width`` characters. A part above 0 is always
    visible."""
    if part <= 0 or whole <= 0:
        return ""
    if style.ascii:
        return ASCII_BAR * max(1, round(width * part / whole))
    full, rest = divmod(max(1, round(len(EIGHTHS) * width * part / whole)), len(EIGHTHS))
    return EIGHTHS[-1] * full + (EIGHTHS[rest - 1] if rest else "")
