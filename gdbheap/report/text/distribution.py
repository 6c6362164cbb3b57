"""Tables of sizes by powers of two with a bar for each, much as DTrace's ``quantize`` prints them.

The longest bar is that of the row with the most calls.
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
# From an eighth of a character to a full one.
EIGHTHS = "▏▎▍▌▋▊▉█"


def render(rows: Sequence[SizeShare], style: Style, nothing: str = "There was no call.") -> str:
    """Return a row for each power of two, with its calls as a bar, and the total; ``nothing`` if there are no rows."""
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
    """Return ``part`` of ``whole`` as a bar of at most ``width`` characters; a part above 0 is always visible."""
    if part <= 0 or whole <= 0:
        return ""
    if style.ascii:
        return ASCII_BAR * max(1, round(width * part / whole))
    full, rest = divmod(max(1, round(len(EIGHTHS) * width * part / whole)), len(EIGHTHS))
    return EIGHTHS[-1] * full + (EIGHTHS[rest - 1] if rest else "")
