"""Rows of a table in batches, column by column: large tables as the native half packs them, small ones as lists."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Union

from gdbheap.export.declaration import INTEGER, Table

__all__ = [
    "AT_ONCE",
    "MODULUS",
    "Batch",
    "Batches",
    "Cells",
    "Coded",
    "Constant",
    "Packed",
    "Rows",
    "small",
    "values_of",
]

AT_ONCE = 1 << 18
"""The most rows in a batch of a large table."""

SIGN, MODULUS = 1 << 63, 1 << 64


@dataclass(frozen=True)
class Packed:
    """64-bit numbers, little-endian."""

    data: bytes


@dataclass(frozen=True)
class Coded:
    """Texts as indices into ``names``: 32-bit numbers, little-endian. The first name may be None."""

    codes: bytes
    names: Sequence[str | None]


@dataclass(frozen=True)
class Constant:
    """A column with the same value in each row."""

    value: Any


Cells = Union[Packed, Coded, Constant, "list[Any]"]


@dataclass(frozen=True)
class Batch:
    """``count`` rows: the cells of each column, in the table's order."""

    count: int
    columns: Sequence[Cells]


Batches = Callable[[], Iterator[Batch]]
"""Yields the rows of a table, from the first one on each time that it is called."""

Rows = Sequence[Sequence[Any]]


def small(table: Table, rows: Rows) -> Batches:
    """Return the batches of a small table from its rows, whose cells are in the order of the columns."""
    columns = [list(column) for column in zip(*rows)] if rows else [[] for _ in table.columns]
    for place, column in enumerate(table.columns):
        if column.kind == INTEGER:
            columns[place] = [_signed(value) for value in columns[place]]
    return lambda: iter([Batch(len(rows), columns)] if rows else [])


def _signed(value: int | None) -> int | None:
    """Return a 64-bit number as tables store it: signed, so that addresses in the kernel's half are negative. A hostile
    core may claim more than fits, which is cut."""
    if value is None:
        return None
    value %= MODULUS
    return value - MODULUS if value >= SIGN else value


def values_of(cells: Cells, count: int) -> Iterable[Any]:
    """Return the cells of ``count`` rows as Python values."""
    if isinstance(cells, Packed):
        return array("q", cells.data)
    if isinstance(cells, Coded):
        return map(cells.names.__getitem__, array("I", cells.codes))
    return repeat(cells.value, count) if isinstance(cells, Constant) else cells
