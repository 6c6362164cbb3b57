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


def render(answer: Stats, style: Style, whole: Stats | None = None) -> str:
    """Return the text of the answer: whether gdbheap's figures agree with malloc_stats(), and the lines that it
    printed. A table shows both values of each figure, in bytes.

    ``whole``: the answer with all rows, if ``answer`` has fewer.
    """
    said = "\n".join(f"  {line}" for line in answer.text.splitlines())
    heading = style.heading("malloc_stats() of the process printed:")
    rows = [_row(row) for row in answer.rows]
    return join(style.filled(_sentence(whole or answer)), f"{heading}\n{said}", table(COLUMNS, rows, style))


def _agrees(row: StatsRow) -> bool:
    return row.theirs == row.ours % UNSIGNED_INT


def _row(row: StatsRow) -> list[str]:
    difference = "-" if _agrees(row) else f"{row.ours % UNSIGNED_INT - row.theirs:+,}"
    return [row.arena_name, row.what, count_text(row.theirs), count_text(row.ours), difference]


def _sentence(answer: Stats) -> str:
    if answer.agrees:
        return f"All {len(answer.rows)} figures agree with malloc_stats()."
    wrong = sum(not _agrees(row) for row in answer.rows)
    if not wrong:
        return (
            "Some arenas are only in gdbheap's list, or only in that of malloc_stats(). All figures of other arenas "
            "agree."
        )
    return (
        f"{wrong} of {len(answer.rows)} figures {'differs' if wrong == 1 else 'differ'} from malloc_stats(), which "
        "prints 32-bit numbers; only these 32 bits were compared. A difference means a fault of gdbheap or a damaged "
        "heap ('heap check')."
    )
