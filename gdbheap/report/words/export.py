"""The text of ``gdbheap export``: where the tables were written, and how many rows and bytes they have."""

from __future__ import annotations

from gdbheap.export.table_export import Exported
from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

__all__ = ["render"]

COLUMNS = (Column("table", left=True), Column("rows"), Column("file's size"), Column("file", left=True))


def render(answer: Exported, style: Style) -> str:
    """Return the text of the answer: the folder, and the number of rows and bytes that were written to it. For a single
    target a row for each table follows."""
    done = f"Wrote the tables of {counted(answer.look_count, 'snapshot')} to {answer.folder}"
    sizes = {one.file: one.size for one in answer.rows}
    sums = f"{counted(sum(one.row_count for one in answer.rows), 'row')}, {style.bytes(sum(sizes.values()))}"
    missed = "\n".join(f"Left out: {reason}" for reason in answer.left_out)
    if answer.look_count != 1:
        return join(style.filled(f"{done}: {sums}."), missed)
    rows = [[one.name, f"{one.row_count:,}", style.size(one.size), one.file] for one in answer.rows]
    if len(sizes) == 1 < len(rows):
        # A database is a single file. The sentence names it.
        told = style.filled(f"{done}/{next(iter(sizes))}: {sums}.")
        return join(told, table(COLUMNS[:2], [row[:2] for row in rows], style), missed)
    return join(style.filled(f"{done}: {sums}."), table(COLUMNS, rows, style), missed)
