"""The text of ``heap pyobjects --buffers``: a row for each kind of buffer that Python objects own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, Shares, join, left_over, table

if TYPE_CHECKING:
    from gdbheap.answers.buffers import Buffer, Buffers

__all__ = ["render"]

COLUMNS = Column("buffer", True), Column("owner type", True)


def render(answer: Buffers, style: Style) -> str:
    """Return the text of the answer. It begins with the number of all buffers, and their bytes. A table has a row for
    each kind of buffer, one for kinds that are not listed, and the total.
    """
    if not answer.matching:
        return style.filled("No object of a matching type owns a buffer; 'heap pyobjects' lists the types.")
    sizes = [(buffer.bytes, buffer.absent) for buffer in answer.rows]
    shares = Shares(style, [(answer.bytes, answer.absent), *sizes])
    rows = [_row(buffer, style, shares) for buffer in answer.rows]
    left = answer.matching - len(answer.rows)
    if left:
        count, size, absent = left_over(answer, answer.rows, ("count", "bytes", "absent"))
        rest = [count_text(count), style.size(size), *shares.cells(size, absent)]
        rows.append([*rest, f"({left:,} more kinds)", ""])
    whole = [count_text(answer.count), style.size(answer.bytes), *shares.cells(answer.bytes, answer.absent)]
    total = [*whole, "total", ""]
    return join(
        style.filled(_sentence(answer, style)),
        table((Column("count"), Column("size"), *shares.columns, *COLUMNS), rows, style, total),
    )


def _row(buffer: Buffer, style: Style, shares: Shares) -> list[str]:
    cells = [count_text(buffer.count), style.size(buffer.bytes), *shares.cells(buffer.bytes, buffer.absent)]
    return [*cells, buffer.role, buffer.type]


def _sentence(answer: Buffers, style: Style) -> str:
    held = counted(answer.count, "buffer of Python objects holds", "buffers of Python objects hold")
    start = f"{held} {style.bytes(answer.bytes)}{style.of_rss(answer.bytes, answer.absent)}."
    if not answer.reached:
        return start
    return (
        f"{start} {style.bytes(answer.reached)} of it has the role structure: no known field points to these blocks, "
        "but objects of the row's type reach them."
    )
