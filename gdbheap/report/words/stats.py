"""The text of ``heap stats``: the output of malloc_stats() next to our figures."""

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
    """Return what the process printed, line by line, both figures side by side in bytes, and whether they agree."""
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
        return "Not every arena is in both lists; the figures of those that are agree."
    return (
        f"{wrong} of {len(answer.rows)} figures differ. malloc_stats() prints 32-bit numbers, compared as such; any "
        "other difference is a fault of gdbheap or a damaged heap ('heap check')."
    )
