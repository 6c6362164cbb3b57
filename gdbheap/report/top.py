"""``gdbheap top`` for people: a table of processes at one moment."""

from __future__ import annotations

from datetime import datetime, timezone

from gdbheap.errors import one_line
from gdbheap.history.standing import Standing, Table
from gdbheap.report.numbers import UNKNOWN, counted
from gdbheap.report.recording import duration_text
from gdbheap.report.style import Style
from gdbheap.report.tables import Column, join, table

__all__ = ["render"]

NAMES = ("RSS", "growth", "swap", "malloc", "in use", "idle", "Python", "in use")
COLUMNS = (Column("pid"), Column("program", True), *map(Column, NAMES))
PROGRAM_WIDTH = 24


def render(answer: Table, left_out: int, style: Style) -> str:
    """A line with the sums, and a row a process."""
    when = datetime.fromtimestamp(answer.time, timezone.utc).strftime("%H:%M:%S UTC")
    total = answer.total
    sums = f"RSS {style.bytes(total.rss)}, swap {style.bytes(total.swap)}"
    longest = max((row.seconds for row in answer.programs), default=0.0)
    grown = f", {_signed(total.growth, style)} in {duration_text(longest)}" if longest else ""
    head = f"{when}  {counted(total.processes, 'process', 'processes')}: {sums}{grown}"
    rest = f"{counted(left_out, 'more process', 'more processes')} (--top=all lists all)" if left_out else ""
    return join(style.heading(head), table(COLUMNS, [_row(row, style) for row in answer.programs], style), rest)


def _row(row: Standing, style: Style) -> list[str]:
    malloc = [style.size(size) for size in (row.system, row.in_use, row.idle)]
    python = ["-", "-"] if row.pools is None else [style.size(row.pools), style.size(row.pool_used)]
    sizes = [style.size(row.rss), _signed(row.growth, style), style.size(row.swap), *malloc, *python]
    return [str(row.pid), one_line(row.program, PROGRAM_WIDTH), *sizes]


def _signed(size: int | None, style: Style) -> str:
    return UNKNOWN if size is None else f"{'+' if size > 0 else ''}{style.size(size)}"
