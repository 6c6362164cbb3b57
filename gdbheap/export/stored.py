"""Read tables from a database that an export wrote. The database may have been changed to harm its readers."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any, BinaryIO, NoReturn
from urllib.parse import quote

from gdbheap.errors import GdbheapError, UsageError, one_line
from gdbheap.export.batches import AT_ONCE, Batch
from gdbheap.export.declaration import FLAG, INTEGER, REAL, TEXT, ExportTable, TableColumn
from gdbheap.export.exported import data_ranges
from gdbheap.export.table_files import SQL_TYPES
from gdbheap.files import temporary_folder
from gdbheap.host.headroom import disk_left

__all__ = ["StoredTables"]

MAGIC = b"SQLite format 3\0"
PIECE = 1 << 20
# The longest string that a table may have. Older versions of sqlite3 cannot set this limit: then rows are fetched one
# at a time.
LONGEST = 1 << 20
HAS_LIMIT = sys.version_info >= (3, 11)
ROWS = 64 if HAS_LIMIT else 1
# The most characters of all strings in one batch.
BATCH_SIZE = 32 << 20
# The limit for listing the tables: SQLite may take STEPS * STEP of its steps.
STEP, STEPS = 1000, 2000
KINDS = {INTEGER: int, TEXT: str, REAL: float, FLAG: int}
CREATED = re.compile(r'CREATE TABLE "\w+" \(("\w+" [A-Z]+(?: NOT NULL)?(?:, "\w+" [A-Z]+(?: NOT NULL)?)*)\)')


class StoredTables:
    """Reads tables of a database file, through a private copy that is made on first use. ``opened``: a function that
    opens the file ``path``."""

    def __init__(self, path: str, opened: Callable[[], BinaryIO]) -> None:
        self._path, self._source = path, opened
        self._stack = ExitStack()
        self._database: sqlite3.Connection | None = None
        self._size = self._steps = 0

    def __enter__(self) -> StoredTables:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def batches(self, table: ExportTable) -> Iterator[Batch] | None:
        """Return the rows of a table in batches; None if the database does not contain it.

        Raises UsageError if no export can have written the table; reading the rows may raise it too. Raises
        GdbheapError if the disk is too full for the copy."""
        try:
            if self._database is None:
                self._database = self._opened()
            return self._rows(self._database, table) if self._has(self._database, table) else None
        except (sqlite3.Error, OSError, ValueError) as error:
            self._fail(error)

    def _opened(self) -> sqlite3.Connection:
        """Copy the database and open the copy. SQLite creates files next to a database, and would read files that
        somebody else has put there."""
        folder = self._stack.enter_context(temporary_folder())
        path = os.path.join(folder, "copy")
        with self._source() as source, open(path, "xb") as copy:
            self._size = os.fstat(source.fileno()).st_size
            self._copy(source, copy)
        database = sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)
        self._stack.enter_context(closing(database))
        if sys.version_info >= (3, 11):
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        database.execute("PRAGMA trusted_schema = OFF")
        database.execute("PRAGMA cell_size_check = ON")
        return database

    def _copy(self, source: BinaryIO, copy: BinaryIO) -> None:
        left = self._size
        if left > disk_left(copy.fileno()):
            raise GdbheapError(
                f"{one_line(self._path)} must be copied before it is read, and the disk has no room for its"
                f" {left >> 20:,} MiB: set TMPDIR to a folder with more room"
            )
        if source.read(len(MAGIC)) != MAGIC:
            raise ValueError("it is not an SQLite database")
        # A file may have holes that would fill the disk. No row is in a hole, so the copy gets a hole too.
        descriptor = source.fileno()
        self._size = sum(_copied(descriptor, copy, start, end) for start, end in data_ranges(descriptor, self._path))
        copy.truncate(left)

    def _has(self, database: sqlite3.Connection, table: ExportTable) -> bool:
        """Return whether the table exists in the database. The number of steps is limited, because the pages of a
        hostile database may form a cycle.
        """
        self._steps = 0
        database.set_progress_handler(self._step, STEP)
        # Refuse views, virtual tables and generated columns, so that only stored data is read.
        query = "SELECT type, sql FROM sqlite_master WHERE name = ? COLLATE NOCASE"
        found = database.execute(query, (table.name,)).fetchmany(2)
        database.set_progress_handler(None, 0)
        if found and not (len(found) == 1 and _is_ours(table, *found[0])):
            self._refuse(table)
        return bool(found)

    def _step(self) -> bool:
        self._steps += 1
        return self._steps > STEPS

    def _rows(self, database: sqlite3.Connection, table: ExportTable) -> Iterator[Batch]:
        try:
            yield from self._read(database, table)
        except (sqlite3.Error, ValueError) as error:
            self._fail(error)

    def _read(self, database: sqlite3.Connection, table: ExportTable) -> Iterator[Batch]:
        names = ", ".join(f'"{name}"' for name in table.names)
        rows = database.execute(f'SELECT {names} FROM "{table.name}"')
        held: list[Sequence[Any]] = []
        texts = total = 0
        while found := rows.fetchmany(ROWS):
            size = self._checked(table, found)
            texts, total = texts + size, total + size + len(found) * len(names.split())
            # Pages may form a cycle, so that they are read again and again.
            if total > self._size:
                self._refuse(table)
            held += found
            if len(held) >= AT_ONCE or texts >= BATCH_SIZE:
                yield _batch(table, held)
                held, texts = [], 0
        if held:
            yield _batch(table, held)

    def _checked(self, table: ExportTable, rows: Sequence[Sequence[Any]]) -> int:
        """Check the rows. Return the total length of their strings. Raises UsageError for a value that its column
        cannot have."""
        size = 0
        for column, cells in zip(table.columns, zip(*rows)):
            if not set(map(type, cells)) <= _types(column):
                self._refuse(table)
            if column.kind == TEXT:
                size += sum(map(len, filter(None, cells)))
        return size

    def _refuse(self, table: ExportTable) -> NoReturn:
        raise UsageError(f"{one_line(self._path)}: {table.name} is not a table that gdbheap wrote")

    def _fail(self, error: Exception) -> NoReturn:
        # If the handler of a signal raises while SQLite asks whether to continue, Python drops the exception.
        is_interrupted = str(error) == "interrupted"
        if is_interrupted and self._steps <= STEPS:
            raise KeyboardInterrupt from None
        reason = "its list of tables is endless" if is_interrupted else one_line(error)
        raise UsageError(f"{one_line(self._path)}: {reason}") from None


def _copied(descriptor: int, copy: BinaryIO, start: int, end: int) -> int:
    """Copy a range of a file. Parts that contain only zeros become holes. Return the number of bytes that were
    written."""
    copy.seek(start)
    written = 0
    while start < end and (piece := os.pread(descriptor, min(PIECE, end - start), start)):
        start += len(piece)
        if piece == bytes(len(piece)):
            copy.seek(start)
        else:
            written += copy.write(piece)
    return written


def _is_ours(table: ExportTable, kind: Any, text: Any) -> bool:
    found = CREATED.fullmatch(text) if kind == "table" and isinstance(text, str) else None
    declared = set(found[1].replace(" NOT NULL", "").split(", ")) if found else set()
    return declared >= {f'"{column.name}" {SQL_TYPES[column.kind]}' for column in table.columns}


def _types(column: TableColumn) -> set[type]:
    return {KINDS[column.kind], type(None)} if column.may_lack else {KINDS[column.kind]}


def _batch(table: ExportTable, rows: Sequence[Sequence[Any]]) -> Batch:
    columns = [list(cells) for cells in zip(*rows)]
    for place, column in enumerate(table.columns):
        if column.kind == FLAG:
            columns[place] = [None if value is None else bool(value) for value in columns[place]]
    return Batch(len(rows), columns)
