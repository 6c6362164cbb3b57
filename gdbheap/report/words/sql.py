"""The answer of ``gdbheap sql`` as text and as CSV."""

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
# Functions of SQL whose result is one of the column's values, so that it has the column's unit.
OF_COLUMN = re.compile(r"(?:min|max|first|last|any_value)\((\w+)\)")


def render(answer: Answered, left_out: int, style: Style) -> str:
    """Return the answer as a table. Sizes and counts have thousands separators. Addresses are in the form that ``heap
    at`` accepts.

    Numbers that identify something, such as a process, have no separators. ``left_out``: how many rows are not shown.
    """
    numbers = [
        bool(answer.rows) and all(row[place] is None or _is_number(row[place]) for row in answer.rows)
        for place in range(len(answer.columns))
    ]
    columns = [Column(column.name, left=not number) for column, number in zip(answer.columns, numbers)]
    units = [_unit(column.name) for column in answer.columns]
    rows = [[_text(value, unit) for value, unit in zip(row, units)] for row in answer.rows]
    more = counted(left_out, "more row") if left_out else ""
    return join(table(columns, rows, style), more or counted(len(rows), "row"))


def _unit(name: str) -> str:
    """Return the unit of a column of the answer. The unit is found by the column's name in gdbheap's tables."""
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
        # In a table, an address in the kernel's half is negative.
        return f"{value % MODULUS:#x}"
    return f"{value:,}" if unit in (BYTES, COUNT) else str(value)


def render_csv(answer: Answered, safe: bool) -> str:
    """Return the answer as CSV, with a first line of names and without a line break at the end.

    ``safe``: escape cells that a spreadsheet would evaluate as formulas.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([csv_cell(column.name, safe) for column in answer.columns])
    writer.writerows([_plain(value, safe) for value in row] for row in answer.rows)
    return stream.getvalue().removesuffix("\n")


def _plain(value: Any, safe: bool) -> Any:
    return str(value).lower() if isinstance(value, bool) else csv_cell(value, safe)
