"""``heap pyobjects --buffers`` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.buffers import Buffer, Buffers

__all__ = ["render"]

COLUMNS = (Column("count"), Column("size"), SHARE, Column("buffer", True), Column("of type", True))


def render(answer: Buffers, style: Style) -> str:
    """A row a kind of buffer, what is not listed as one row, the total; then a sentence."""
    if not answer.rows:
        return style.filled("No object of a type whose name matches owns a buffer; 'heap pyobjects' lists the types.")
    rows = [_row(buffer, style) for buffer in answer.buffers]
    left = answer.rows - len(answer.buffers)
    if left:
        count = answer.count - sum(buffer.count for buffer in answer.buffers)
        size = answer.bytes - sum(buffer.bytes for buffer in answer.buffers)
        rows.append(_cells(count, size, f"({left:,} more kinds)", "", style))
    total = _cells(answer.count, answer.bytes, "total", "", style)
    return join(table(COLUMNS, rows, style, total), style.filled(_sentence(answer, style)))


def _row(buffer: Buffer, style: Style) -> list[str]:
    return _cells(buffer.count, buffer.bytes, buffer.role, buffer.type, style)


def _cells(count: int, size: int, role: str, name: str, style: Style) -> list[str]:
    return [count_text(count), style.size(size), style.share(size), role, name]


def _sentence(answer: Buffers, style: Style) -> str:
    held = counted(answer.count, "buffer of Python objects holds", "buffers of Python objects hold")
    start = f"{held} {style.bytes(answer.bytes)}{style.of_rss(answer.bytes)}."
    if not answer.reached:
        return start
    return (
        f"{start} {style.bytes(answer.reached)} of it is called structure: no known field names these blocks, but "
        "pointers lead to them from objects of this type."
    )
