"""``heap pyobjects --by=line`` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.lines import Lines

__all__ = ["render"]

COLUMNS = (Column("blocks"), Column("asked for"), SHARE, Column("line", True))


def render(answer: Lines, style: Style) -> str:
    """A row a line, the rest as one row, the total; then a sentence."""
    rows = [[count_text(row.count), style.size(row.bytes), style.share(row.bytes), row.line] for row in answer.lines]
    count, size = (
        getattr(answer, name) - sum(getattr(row, name) for row in answer.lines) for name in ("count", "bytes")
    )
    if count:
        rows.append([count_text(count), style.size(size), style.share(size), "(other lines)"])
    total = [count_text(answer.count), style.size(answer.bytes), style.share(answer.bytes), "total"]
    blocks = counted(answer.count, "block", "blocks")
    text = f"tracemalloc has traced {blocks} that are in use; {style.bytes(answer.bytes)} were asked for."
    if answer.unreadable:
        text += f" {answer.unreadable:,} of its entries lead nowhere."
    return join(table(COLUMNS, rows, style, total), style.filled(text))
