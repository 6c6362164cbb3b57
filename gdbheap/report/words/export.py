"""The text of ``gdbheap export``."""

from __future__ import annotations

from gdbheap.export.looks import Exported
from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

__all__ = ["render"]

COLUMNS = (Column("table", left=True), Column("rows"), Column("file's size"), Column("file", left=True))


def render(answer: Exported, style: Style) -> str:
    """Return the text of the answer: for a single target a row for each table, for several targets only the sums."""
    together = f"{counted(answer.look_count, 'snapshot')} in {answer.folder}: "
    sizes = {one.file: one.size for one in answer.rows}
    sums = f"{counted(sum(one.row_count for one in answer.rows), 'row')}, {style.bytes(sum(sizes.values()))}"
    missed = "\n".join(f"Left out: {reason}" for reason in answer.left_out)
    if answer.look_count != 1:
        return join(style.filled(f"{together}{sums}."), missed)
    rows = [[one.name, f"{one.row_count:,}", style.size(one.size), one.file] for one in answer.rows]
    if len(sizes) == 1 < len(rows):
        # A database is a single file. The sentence names it.
        together = f"{counted(answer.look_count, 'snapshot')} in {answer.folder}/{next(iter(sizes))}: "
        return join(table(COLUMNS[:2], [row[:2] for row in rows], style), style.filled(f"{together}{sums}."), missed)
    return join(table(COLUMNS, rows, style), style.filled(f"{together}{sums}."), missed)
