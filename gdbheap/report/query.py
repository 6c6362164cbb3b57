"""``gdbheap sql`` for people, and as CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

from gdbheap.report.numbers import counted
from gdbheap.report.style import Style
from gdbheap.report.tables import Column, join, table
from gdbheap.tables.query import Answered

__all__ = ["render", "render_csv"]


def render(answer: Answered, left_out: int, style: Style) -> str:
    """The rows as DuckDB gives them; numbers have thousands separators."""
    numbers = [
        bool(answer.rows) and all(row[place] is None or _is_number(row[place]) for row in answer.rows)
        for place in range(len(answer.columns))
    ]
    columns = [Column(column.name, left=not number) for column, number in zip(answer.columns, numbers)]
    rows = [[_text(value) for value in row] for row in answer.rows]
    more = f"{left_out:,} more rows" if left_out else ""
    return join(table(columns, rows, style), more or counted(len(rows), "row"))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if _is_number(value) else str(value)


def render_csv(answer: Answered) -> str:
    """With a line of names first, without a last line break."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([column.name for column in answer.columns])
    writer.writerows([_plain(value) for value in row] for row in answer.rows)
    return stream.getvalue().removesuffix("\n")


def _plain(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
