"""The text of ``gdbheap sql``, and its CSV."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from gdbheap.export.batches import MODULUS
from gdbheap.export.declaration import ADDRESS, BYTES, COUNT, TABLES
from gdbheap.export.query import Answered
from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.text import csv_cell

__all__ = ["render", "render_csv"]


UNITS = {column.name: column.unit for table in TABLES for column in table.columns}
# Aggregates whose value is one of the column's values.
OF_COLUMN = re.compile(r"(?:min|max|first|last|any_value)\((\w+)\)")


def render(answer: Answered, left_out: int, style: Style) -> str:
    """Return the rows as DuckDB gives them, sizes and counts with thousands separators.

    Addresses are in the form that ``heap at`` takes. Numbers that name something, such as a process, are as they are
    typed.
    """
    numbers = [
        bool(answer.rows) and all(row[place] is None or _is_number(row[place]) for row in answer.rows)
        for place in range(len(answer.columns))
    ]
    columns = [Column(column.name, left=not number) for column, number in zip(answer.columns, numbers)]
    units = [_unit(column.name) for column in answer.columns]
    rows = [[_text(value, unit) for value, unit in zip(row, units)] for row in answer.rows]
    more = f"{left_out:,} more rows" if left_out else ""
    return join(table(columns, rows, style), more or counted(len(rows), "row"))


def _unit(name: str) -> str:
    """Return the unit of an answer's column, by its name in the tables."""
    found = OF_COLUMN.fullmatch(name)
    return UNITS.get(found[1] if found else name, COUNT)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any, unit: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if not _is_number(value):
        return str(value)
    if unit == ADDRESS and isinstance(value, int):
        # An address in the kernel's half is negative in a table.
        return f"{value % MODULUS:#x}"
    return f"{value:,}" if unit in (BYTES, COUNT) else str(value)


def render_csv(answer: Answered, safe: bool) -> str:
    """Return the rows below a line of names, without a last line break. ``safe``: escape cells that a spreadsheet would
    compute."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([csv_cell(column.name, safe) for column in answer.columns])
    writer.writerows([_plain(value, safe) for value in row] for row in answer.rows)
    return stream.getvalue().removesuffix("\n")


def _plain(value: Any, safe: bool) -> Any:
    return str(value).lower() if isinstance(value, bool) else csv_cell(value, safe)
