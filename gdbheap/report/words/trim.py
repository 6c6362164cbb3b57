"""The text of ``heap trim``: a row for each arena, the total, and the meaning of the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import arena_text, count_text, sum_or_none
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.trim import ArenaTrim, Trim

__all__ = ["render"]

COLUMNS = (
    Column("arena", True), Column("chunks"), Column("free pages"), Column("reclaimable"), SHARE, Column("from top"),
    Column("top kept"),
)  # fmt: skip
ACTUAL = Column("returned")


def render(answer: Trim, whole: Trim, style: Style) -> str:
    """Return the text of the answer: the memory that malloc_trim() would return, in total and for each arena.

    If malloc_trim() was called, the memory that it returned is added. ``whole``: the answer with all its arenas, for
    the total.
    """
    done = answer.actual is not None
    columns = (*COLUMNS[:4], ACTUAL, *COLUMNS[4:]) if done else COLUMNS
    rows = [_row(row, style, done) for row in answer.rows]
    total = _total(whole, style, done)
    return join(*map(style.filled, _sentences(answer, style)), table(columns, rows, style, total))


def _total(answer: Trim, style: Style, done: bool) -> list[str]:
    start = ["total", count_text(sum(row.chunks for row in answer.rows)), style.size(answer.pages)]
    tops = [sum_or_none([row.top_predicted for row in answer.rows]), sum_or_none([row.top_kept for row in answer.rows])]
    return _cells(start, answer.predicted, [style.size(answer.actual)] if done else [], tops, style)


def _row(row: ArenaTrim, style: Style, done: bool) -> list[str]:
    start = [arena_text(row.index), count_text(row.chunks), style.size(row.pages)]
    actual = [style.size(row.actual)] if done else []
    return _cells(start, row.predicted, actual, [row.top_predicted, row.top_kept], style)


def _cells(start: list[str], given: int | None, actual: list[str], tops: list[int | None], style: Style) -> list[str]:
    return [*start, style.size(given), *actual, style.share(given), *map(style.size, tops)]


def _sentences(answer: Trim, style: Style) -> list[str]:
    call = f"malloc_trim({answer.pad})"
    if answer.predicted is None:
        return [f"{call} would return up to {style.bytes(answer.pages)}; how much of this is resident is unknown."]
    if answer.actual is None:
        return [_predicted(answer, call, style), *_swapped(answer, style)]
    change = f"RssAnon went from {style.bytes(answer.rss_before)} to {style.bytes(answer.rss_after)}"
    beside = f"{style.bytes(answer.actual)} returned, {style.bytes(answer.predicted)} predicted"
    return [f"{call} was called: {change}, {beside}."]


def _predicted(answer: Trim, call: str, style: Style) -> str:
    if not answer.predicted:
        return f"{call} would return nothing: malloc has no completely free resident pages that this call reaches."
    given = f"{style.bytes(answer.predicted)}{style.of_rss(answer.predicted)}"
    return f"{call} would return {given}. 'heap trim --yes' makes this call."


def _swapped(answer: Trim, style: Style) -> list[str]:
    return [f"The call would also free {style.bytes(answer.swapped)} of swap."] if answer.swapped else []
