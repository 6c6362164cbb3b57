"""The text of ``gdbheap top``: one table of the processes at one moment."""

from __future__ import annotations

from datetime import datetime, timezone

from gdbheap.errors import one_line
from gdbheap.report.text.numbers import UNKNOWN, count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.report.words.record import duration_text
from gdbheap.sampling.current_totals import CurrentTable, Standing

__all__ = ["HELP", "render"]

SWAP = "swap"
NAMES = ("RSS", "growth", SWAP, "malloc", "malloc used", "idle", "Python", "python used")
PROGRAM_WIDTH = 24
# The mark for figures that were not read yet, or that may not be read.
NOT_READ, NOT_READ_ASCII = "…", ".."
HELP = """gdbheap top: the memory of running processes

growth         how much RSS has grown since the process was first read
malloc         memory that malloc got from the kernel
malloc used    the part of malloc that the program has not freed
idle           the part of malloc that is free
Python         the arenas of Python's own allocator
python used    the part of these arenas that is in use
…              not read yet, or not permitted

h, ?           show this page; any key goes back
q, Ctrl-C      quit
other keys     read again at once"""


def render(answer: CurrentTable, left_out: int, style: Style) -> str:
    """Return the text of the answer. The first line has the time, the number of processes, their memory, and the
    process that has grown most. A table has a row for each process.

    ``left_out``: how many processes are not listed.
    """
    when = datetime.fromtimestamp(answer.time, timezone.utc).strftime("%H:%M:%S UTC")
    total = answer.total
    sums = f"RSS {style.bytes(total.rss)}" + (f", swap {style.bytes(total.swapped)}" if total.swapped else "")
    longest = max((row.seconds for row in answer.rows), default=0.0)
    grown = f", {_signed(total.growth, style)} in {duration_text(longest)}" if longest else ""
    count = counted(total.processes, "process", "processes")
    if answer.smaller:
        count = (
            f"{count_text(total.processes)} largest of your {count_text(total.processes + answer.smaller)} processes"
        )
    most = "" if left_out else _grown_most(answer, style)
    head = f"{when}  {count}: {sums}{grown}{most}"
    rest = f"{counted(left_out, 'more process', 'more processes')} (--top=all lists all)" if left_out else ""
    names = [name for name in NAMES if name != SWAP or any(row.swapped for row in answer.rows)]
    columns = (Column("pid"), Column("program", True), *map(Column, names))
    rows = [_row(row, SWAP in names, style) for row in answer.rows]
    missing = counted(answer.refused, "process is", "processes are")
    missing = f"{missing} not read: {'; '.join(map(one_line, answer.left_out))}" if answer.refused else ""
    body = table(columns, rows, style) if rows or missing else "No running process matches."
    return join(style.heading(head), body, rest, missing)


def _grown_most(answer: CurrentTable, style: Style) -> str:
    """Return a clause about the process that has grown the most; "" if there is one process, or if none has grown."""
    first = max(answer.rows, key=lambda row: row.growth or 0, default=None)
    if first is None or (first.growth or 0) <= 0 or len(answer.rows) < 2:
        return ""
    return f"; {one_line(first.program, PROGRAM_WIDTH)} ({first.pid}) grew most, {_signed(first.growth, style)}"


def _row(row: Standing, has_swap: bool, style: Style) -> list[str]:
    not_read = NOT_READ_ASCII if style.ascii else NOT_READ
    malloc = [not_read if size is None else style.size(size) for size in (row.system, row.in_use, row.idle)]
    # If malloc is known, the process was read. An unknown figure of Python then means that it has no Python.
    no_python = not_read if row.system is None else "-"
    python = [no_python if size is None else style.size(size) for size in (row.pool_arenas, row.pool_used)]
    swap = [style.size(row.swapped)] if has_swap else []
    growth = _signed(row.growth, style) if row.seconds else not_read
    sizes = [style.size(row.rss), growth, *swap, *malloc, *python]
    return [str(row.pid), one_line(row.program, PROGRAM_WIDTH), *sizes]


def _signed(size: int | None, style: Style) -> str:
    return UNKNOWN if size is None else f"{'+' if size > 0 else ''}{style.size(size)}"
