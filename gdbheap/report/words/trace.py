"""The final text of ``gdbheap trace``, about the recorded calls."""

from __future__ import annotations

from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.tracing.traced_command import TracedCommand

__all__ = ["render", "sentence"]

LEFT = True


def sentence(answer: TracedCommand) -> str:
    """Return one line: the number of recorded calls and processes, the file, bytes per call, calls that were lost, and
    failures.
    """
    what = f"{counted(answer.calls, 'call')} of {counted(len(answer.rows), 'process', 'processes')}"
    python = sum(process.of_python.calls for process in answer.rows if process.of_python is not None)
    more = f", and {counted(python, 'call')} of Python's allocator" if python else ""
    lost = f"; {answer.lost:,} more could not be recorded" if answer.lost else ""
    each = f", {answer.size / (answer.calls + python):.2f} bytes per call" if answer.calls else ""
    return "; ".join([f"{what}{more} in {answer.file}{each}{lost}", *answer.failures])


def render(answer: TracedCommand, style: Style) -> str:
    """Return the text of the answer: the line of ``sentence`` (recorded calls, file, losses), and a row for each
    process.
    """
    columns = (
        Column("pid"), Column("calls"), Column("threads"), Column("peak in use"), Column("in use at end"),
        Column("program", LEFT),
    )  # fmt: skip
    rows = [
        [
            str(row.pid),
            f"{row.calls:,}",
            f"{row.threads:,}",
            style.size(row.peak_bytes),
            style.size(row.live_bytes),
            row.exe,
        ]
        for row in answer.rows
    ]
    return join(style.filled(f"{sentence(answer)}."), table(columns, rows, style) if rows else "")
