"""Rows of a table, some at a time, column by column: large ones as the native half packs them, small ones as lists."""

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
"""How many rows a batch of a large table has at most."""

SIGN, MODULUS = 1 << 63, 1 << 64


@dataclass(frozen=True)
class Packed:
    """Numbers of 64 bits, little-endian."""

    data: bytes


@dataclass(frozen=True)
class Coded:
    """Texts by their places in ``names``, numbers of 32 bits, little-endian; the first name may be None."""

    codes: bytes
    names: Sequence[str | None]


@dataclass(frozen=True)
class Constant:
    """The same in each row."""

    value: Any


Cells = Union[Packed, Coded, Constant, "list[Any]"]


@dataclass(frozen=True)
class Batch:
    """``count`` rows: the cells of each column of the table, in its order."""

    count: int
    columns: Sequence[Cells]


Batches = Callable[[], Iterator[Batch]]
"""What yields the rows of a table, each time it is called from the first one on."""

Rows = Sequence[Sequence[Any]]


def small(table: Table, rows: Rows) -> Batches:
    """The batches of a few rows, which are in the order of the table's columns."""
    columns = [list(column) for column in zip(*rows)] if rows else [[] for _ in table.columns]
    for place, column in enumerate(table.columns):
        if column.kind == INTEGER:
            columns[place] = [_signed(value) for value in columns[place]]
    return lambda: iter([Batch(len(rows), columns)] if rows else [])


def _signed(value: int | None) -> int | None:
    """A number of 64 bits as tables have it: addresses in the kernel's half are negative there. A hostile core may
    claim more than fits."""
    if value is None:
        return None
    value %= MODULUS
    return value - MODULUS if value >= SIGN else value


def values_of(cells: Cells, count: int) -> Iterable[Any]:
    """The cells of ``count`` rows one by one, as Python has them."""
    if isinstance(cells, Packed):
        return array("q", cells.data)
    if isinstance(cells, Coded):
        return map(cells.names.__getitem__, array("I", cells.codes))
    return repeat(cells.value, count) if isinstance(cells, Constant) else cells
