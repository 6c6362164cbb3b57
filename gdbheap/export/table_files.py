"""Write tables as files: Parquet, CSV, or one SQLite database."""

from __future__ import annotations

import csv
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, islice, repeat
from typing import Any

from gdbheap.dataclass import dataclass
from gdbheap.export.arrow import encoded, pyarrow, record_batch, schema_of
from gdbheap.export.batches import Batch, Batches, Cells, Constant, NumberColumn, TextColumn, values_of
from gdbheap.export.declaration import (
    CSV,
    FLAG,
    FORMATS,
    INTEGER,
    PARQUET,
    REAL,
    SQLITE,
    TABLES,
    TEXT,
    ExportTable,
    TableColumn,
    table_of,
)
from gdbheap.text import csv_cell

__all__ = ["DATABASE", "WrittenTable", "file_of", "is_ours", "write"]

DATABASE = "heap.sqlite"
COMPRESSION = "zstd"
# The number of strings that are kept in a cache. Blocks have only a few different types and roles.
TEXTS_KEPT = 4000
# The rows that one statement inserts. SQLite before 3.32 binds at most 999 values, and no table has more than 20
# columns.
TOGETHER = 48
SQL_TYPES = {INTEGER: "INTEGER", TEXT: "TEXT", REAL: "REAL", FLAG: "INTEGER"}


@dataclass(frozen=True)
class WrittenTable:
    """A table that was written. ``rows``: the number of its rows; ``file``: the name of its file in the export
    folder."""

    name: str
    rows: int
    file: str


def file_of(form: str, table: str) -> str:
    """Return the name of a table's file in an export folder. ``form``: one of FORMATS."""
    return DATABASE if form == SQLITE else f"{table}.{form}"


def is_ours(form_or_name: str) -> bool:
    """Return whether an export writes files in this format, or with this name."""
    return form_or_name in {file_of(form, table.name) for form in FORMATS for table in TABLES}


def write(
    folder: str,
    form: str,
    tables: Iterable[tuple[str, Batches]],
    without: Collection[str] = (),
    csv_safe: bool = False,
) -> list[WrittenTable]:
    """Write each table to its own file or, as SQLite, all tables to one database. Leave out the columns in ``without``.

    ``csv_safe``: write CSV that is safe to open in a spreadsheet. Raises OSError, sqlite3.Error, and Unsupported if a
    library is missing.
    """
    kept = (_without(table_of(name), batches, without) for name, batches in tables)
    if form == SQLITE:
        return _write_database(os.path.join(folder, DATABASE), kept)
    writers: dict[str, Callable[[str, ExportTable, Batches], int]]
    writers = {PARQUET: _write_parquet, CSV: partial(_write_csv, safe=csv_safe)}
    found = []
    for table, batches in kept:
        file = file_of(form, table.name)
        found.append(WrittenTable(table.name, writers[form](os.path.join(folder, file), table, batches), file))
    return found


def _without(table: ExportTable, batches: Batches, names: Collection[str]) -> tuple[ExportTable, Batches]:
    places = [place for place, column in enumerate(table.columns) if column.name not in names]
    if len(places) == len(table.columns):
        return table, batches

    def fewer() -> Iterator[Batch]:
        for batch in batches():
            yield Batch(batch.count, [batch.columns[place] for place in places])

    return replace(table, columns=tuple(table.columns[place] for place in places)), fewer


def _write_parquet(path: str, table: ExportTable, batches: Batches) -> int:
    pyarrow()
    import pyarrow.parquet as parquet

    schema, rows = encoded(schema_of(table)), 0
    texts = [column.name for column in table.columns if column.kind == TEXT]
    # Numbers gain nothing from a dictionary. Sizes and addresses are stored as differences.
    packed = {column.name: "DELTA_BINARY_PACKED" for column in table.columns if column.kind == INTEGER}
    with open(path, "wb") as stream, parquet.ParquetWriter(
        stream, schema, compression=COMPRESSION, use_dictionary=texts or False, column_encoding=packed or None,
        write_statistics=True, store_schema=False,
    ) as writer:  # fmt: skip
        for batch in batches():
            writer.write_batch(record_batch(batch, schema))
            rows += batch.count
        writer.add_key_value_metadata(schema.metadata)
    return rows


def _write_csv(path: str, table: ExportTable, batches: Batches, safe: bool) -> int:
    rows = 0
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        change = partial(_csv_value, lru_cache(TEXTS_KEPT)(partial(csv_cell, safe=safe)))
        writer.writerow(table.names)
        for batch in batches():
            writer.writerows(_rows_of(table, batch, change))
            rows += batch.count
    return rows


def _csv_value(cell: Callable[[Any], Any], column: TableColumn, values: Iterable[Any]) -> Iterable[Any]:
    if column.kind == FLAG:
        return (None if value is None else str(value).lower() for value in values)
    return map(cell, values) if column.kind == TEXT else values


def _storable_cells(column: TableColumn, cells: Cells) -> Cells:
    """Return the cells with strings that can be encoded. A target's strings may have characters that UTF-8 cannot
    encode."""
    if column.kind != TEXT or isinstance(cells, NumberColumn):
        return cells
    if isinstance(cells, Constant):
        return Constant(_storable(cells.value))
    if isinstance(cells, TextColumn):
        return replace(cells, names=[_storable(name) for name in cells.names])
    return [_storable(value) for value in cells]


def _storable(value: str | None) -> str | None:
    return None if value is None else value.encode("utf-8", "replace").decode("utf-8")


def _rows_of(
    table: ExportTable, batch: Batch, change: Callable[[TableColumn, Iterable[Any]], Iterable[Any]]
) -> Iterable[tuple[Any, ...]]:
    return zip(*(change(column, values_of(cells, batch.count)) for column, cells in zip(table.columns, batch.columns)))


def _write_database(path: str, kept: Iterable[tuple[ExportTable, Batches]]) -> list[WrittenTable]:
    found = []
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        # Nobody else sees the file before it is complete.
        for setting in ("journal_mode = OFF", "synchronous = OFF", "temp_store = MEMORY", "page_size = 65536"):
            database.execute(f"PRAGMA {setting}")
        database.execute("BEGIN")
        for table, batches in kept:
            columns = ", ".join(map(_declared, table.columns))
            database.execute(f'CREATE TABLE "{table.name}" ({columns})')
            rows = 0
            for batch in batches():
                rows += batch.count
                _insert(database, table, batch)
            found.append(WrittenTable(table.name, rows, DATABASE))
        database.execute("COMMIT")
    return found


def _insert(database: sqlite3.Connection, table: ExportTable, batch: Batch) -> None:
    """Insert the rows of a batch.

    Inserting many rows with one statement takes a quarter of the time. A column with the same value in each row is
    bound only once for each statement."""
    columns = [_storable_cells(column, cells) for column, cells in zip(table.columns, batch.columns)]
    fixed = [place for place, cells in enumerate(columns) if isinstance(cells, Constant)]
    varied = [place for place in range(len(batch.columns)) if place not in fixed]
    if not varied:
        fixed, varied = [], fixed
    cells = chain.from_iterable(zip(*(values_of(columns[place], batch.count) for place in varied)))
    constants = [repeat(next(iter(values_of(columns[place], 1)))) for place in fixed]
    for rows, times in ((TOGETHER, batch.count // TOGETHER), (1, batch.count % TOGETHER)):
        bound = zip(*constants, *[cells] * (rows * len(varied)))
        database.executemany(_insertion(table, fixed, varied, rows), islice(bound, times))


def _insertion(table: ExportTable, fixed: Sequence[int], varied: Sequence[int], rows: int) -> str:
    """Return the statement that inserts ``rows`` rows. The parameters of the ``fixed`` columns, which have the same
    value in each row, come first."""
    lines, number = [], len(fixed)
    for _ in range(rows):
        of_column = {place: fixed.index(place) + 1 for place in fixed}
        of_column.update((place, number + offset) for offset, place in enumerate(varied, 1))
        number += len(varied)
        lines.append(", ".join(f"?{of_column[place]}" for place in range(len(table.columns))))
    return f'INSERT INTO "{table.name}" VALUES {", ".join(f"({line})" for line in lines)}'


def _declared(column: TableColumn) -> str:
    return f'"{column.name}" {SQL_TYPES[column.kind]}{"" if column.may_lack else " NOT NULL"}'
