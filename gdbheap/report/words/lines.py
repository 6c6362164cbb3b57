"""The text of ``heap pyobjects --by=line``: a row for each source line that allocated blocks, as tracemalloc knows
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, Shares, join, left_over, table

if TYPE_CHECKING:
    from gdbheap.answers.lines import Lines

__all__ = ["render"]


def render(answer: Lines, style: Style) -> str:
    """Return the text of the answer. It begins with the number of blocks that tracemalloc has traced, and the bytes
    requested for them. Entries without a readable line are mentioned. A table has a row for each source line, one
    for lines that are not listed, and the total.
    """
    sizes = [(row.bytes, row.absent) for row in answer.rows]
    shares = Shares(style, [(answer.bytes, answer.absent), *sizes])
    rows = [
        [count_text(row.count), style.size(row.bytes), *shares.cells(row.bytes, row.absent), row.place]
        for row in answer.rows
    ]
    count, size, absent = left_over(answer, answer.rows, ("count", "bytes", "absent"))
    if count:
        rows.append([count_text(count), style.size(size), *shares.cells(size, absent), "(other lines)"])
    total = [count_text(answer.count), style.size(answer.bytes), *shares.cells(answer.bytes, answer.absent), "total"]
    blocks = counted(answer.count, "block", "blocks")
    text = f"tracemalloc has traced {blocks} in use, for which the program requested {style.bytes(answer.bytes)}."
    if answer.unreadable:
        entries = counted(answer.unreadable, "entry of tracemalloc has", "entries of tracemalloc have")
        text += f" {entries} no readable line."
    columns = Column("blocks"), Column("asked for"), *shares.columns, Column("line", True)
    return join(style.filled(text), table(columns, rows, style, total))
