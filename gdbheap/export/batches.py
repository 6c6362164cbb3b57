"""The rows of a table in batches, column by column. Columns of large tables are packed by the native code, columns of
small tables are lists.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Union

from gdbheap.dataclass import dataclass
from gdbheap.export.declaration import INTEGER, ExportTable

__all__ = [
    "AT_ONCE",
    "MODULUS",
    "Batch",
    "Batches",
    "Cells",
    "TextColumn",
    "Constant",
    "NumberColumn",
    "Rows",
    "small",
    "values_of",
]

AT_ONCE = 1 << 18
"""The most rows in one batch of a large table."""

SIGN, MODULUS = 1 << 63, 1 << 64


@dataclass(frozen=True)
class NumberColumn:
    """A column of 64-bit numbers, little-endian."""

    data: bytes


@dataclass(frozen=True)
class TextColumn:
    """A column of strings. ``codes``: for each row an index into ``names``, as a 32-bit little-endian number. The first
    name may be None, for rows without a string.
    """

    codes: bytes
    names: Sequence[str | None]


@dataclass(frozen=True)
class Constant:
    """A column with the same value in each row."""

    value: Any


Cells = Union[NumberColumn, TextColumn, Constant, "list[Any]"]


@dataclass(frozen=True)
class Batch:
    """``count`` rows, as the cells of each column, in the order of the table's columns."""

    count: int
    columns: Sequence[Cells]


Batches = Callable[[], Iterator[Batch]]
"""A function that yields the rows of a table in batches. Each call begins at the first row."""

Rows = Sequence[Sequence[Any]]


def small(table: ExportTable, rows: Rows) -> Batches:
    """Return the batches of a small table. ``rows``: the cells of each row, in the order of the table's columns."""
    columns = [list(column) for column in zip(*rows)] if rows else [[] for _ in table.columns]
    for place, column in enumerate(table.columns):
        if column.kind == INTEGER:
            columns[place] = [_signed(value) for value in columns[place]]
    return lambda: iter([Batch(len(rows), columns)] if rows else [])


def _signed(value: int | None) -> int | None:
    """Return an integer as tables store it: signed, with 64 bits, so that addresses in the kernel's half are negative.

    None stays None. Only the lowest 64 bits of larger numbers are used; a hostile core may contain such numbers."""
    if value is None:
        return None
    value %= MODULUS
    return value - MODULUS if value >= SIGN else value


def values_of(cells: Cells, count: int) -> Iterable[Any]:
    """Return the cells of a column with ``count`` rows as Python values."""
    if isinstance(cells, NumberColumn):
        return array("q", cells.data)
    if isinstance(cells, TextColumn):
        return map(cells.names.__getitem__, array("I", cells.codes))
    return repeat(cells.value, count) if isinstance(cells, Constant) else cells
