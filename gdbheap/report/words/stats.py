"""The text of ``heap stats``: the output of malloc_stats() and gdbheap's own figures side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.answers.stats import UNSIGNED_INT
from gdbheap.report.text.numbers import count_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.stats import Stats, StatsRow

__all__ = ["render"]

COLUMNS = (
    Column("arena", True), Column("what", True), Column("malloc_stats()"), Column("gdbheap"), Column("difference"),
)  # fmt: skip


def render(answer: Stats, style: Style) -> str:
    """Return the text of the answer: each line that the process printed, with gdbheap's figure next to it (both in
    bytes), and whether they agree."""
    said = "\n".join(f"  {line}" for line in answer.text.splitlines())
    heading = style.heading("malloc_stats() of the process printed:")
    rows = [_row(row) for row in answer.rows]
    return join(f"{heading}\n{said}", table(COLUMNS, rows, style), style.filled(_sentence(answer)))


def _agrees(row: StatsRow) -> bool:
    return row.theirs == row.ours % UNSIGNED_INT


def _row(row: StatsRow) -> list[str]:
    difference = "-" if _agrees(row) else f"{row.ours % UNSIGNED_INT - row.theirs:+,}"
    return [row.arena_name, row.what, count_text(row.theirs), count_text(row.ours), difference]


def _sentence(answer: Stats) -> str:
    if answer.agrees:
        return f"All {len(answer.rows)} figures agree."
    wrong = sum(not _agrees(row) for row in answer.rows)
    if not wrong:
        return "Some arenas are in only one of the two lists; the figures of all other arenas agree."
    return (
        f"{wrong} of {len(answer.rows)} figures {'differs' if wrong == 1 else 'differ'}. malloc_stats() prints 32-bit "
        "numbers, and only these 32 bits were compared. A difference means a fault of gdbheap or a damaged heap "
        "('heap check')."
    )
