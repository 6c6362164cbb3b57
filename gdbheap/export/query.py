"""Run queries over the tables with DuckDB, which is imported on use. A query can read only the tables."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from functools import partial
from threading import Event
from typing import Any

from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, UsageError, one_line
from gdbheap.export.arrow import missing, reader_of
from gdbheap.export.batches import Batches, small
from gdbheap.export.declaration import CSV, FLAG, INTEGER, PARQUET, REAL, TABLES, TEXT, ExportTable, table_of
from gdbheap.export.exported import ExportedFiles
from gdbheap.export.gathered import ALL
from gdbheap.export.source import Source
from gdbheap.export.stored import StoredTables
from gdbheap.export.table_files import DATABASE
from gdbheap.host.headroom import room_for_copy

__all__ = ["Answered", "QueryColumn", "query"]

TYPES = {INTEGER: "BIGINT", TEXT: "VARCHAR", REAL: "DOUBLE", FLAG: "BOOLEAN"}
# Settings that keep a query from loading extensions from this machine or the network, and from writing temporary files
# to the working directory.
BEFORE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "temp_directory": ""}
# The first pattern matches queries that list the tables, the second matches DuckDB's message for a missing table.
LISTING = re.compile(
    r"\bshow\s+(all\s+)?tables\b|\binformation_schema\b|\bduckdb_(tables|views|columns)\b|^\s*describe\W*$", re.I
)
UNKNOWN = re.compile(r"Table with name (?P<name>.+?) does not exist")
# The least memory that DuckDB gets, and the memory that a small value takes in an answer, both in bytes.
LEAST, CELL = 64 << 20, 64
# The seconds between two checks for a signal while DuckDB works.
HEARD = 0.1
# The most rows that a file may claim for each byte of its size.
#
# If all rows of a batch are equal, an export writes about 1,100 bytes for each column. With four columns that is at
# most 63 rows for each byte.
MOST_ROWS_A_BYTE = 100
# One row for each file that has rows: whether its pages are compressed as in an export, and how many rows it claims.
ROWS_OF_PARQUET = """
    SELECT file_name, bool_and(packed AND rows >= 0), sum(rows) FROM (
        SELECT file_name, max(row_group_num_rows) AS rows,
            bool_and(coalesce(compression IN ('ZSTD', 'UNCOMPRESSED'), false)) AS packed
        FROM parquet_metadata({paths}) GROUP BY file_name, row_group_id
    ) GROUP BY file_name"""
# One row for each file: whether all columns are flat, that is, not nested and with one value in each row.
COLUMNS_OF_PARQUET = """
    SELECT file_name, count(*) FILTER (num_children > 0) = 1
        AND bool_and(coalesce(repetition_type, '') != 'REPEATED' OR num_children > 0)
    FROM parquet_schema({paths}) GROUP BY file_name"""
# ALWAYS: a setting for each database. AFTER: settings for the time after a database has its tables.
ALWAYS = "SET python_enable_replacements = false"
AFTER = ("SET enable_external_access = false", "SET lock_configuration = true")


@dataclass(frozen=True)
class QueryColumn:
    """A column of a query's answer. ``sql_type``: DuckDB's type of its values."""

    name: str
    sql_type: str


@dataclass(frozen=True)
class Answered:
    """The answer of ``gdbheap sql``. All values in its rows can be written as JSON."""

    columns: list[QueryColumn]
    rows: list[list[Any]]


def query(source: Source, text: str, graph: bool | None = None) -> Answered:
    """Run one query and return its answer.

    ``graph``: whether to build the graph of references; None: if the query needs it. Raises UsageError for a faulty
    query, and Unsupported if a library is missing."""
    duckdb = _duckdb()
    room = max(LEAST, room_for_copy())
    config = {**BEFORE, "memory_limit": f"{room}B"}
    # DuckDB opens the files that a query names even to analyse it, so a database without access to files does that.
    with closing(duckdb.connect(":memory:", config=config)) as database:
        for setting in (ALWAYS, *AFTER):
            database.execute(setting)
        named = _named(database, duckdb, text)
    with closing(duckdb.connect(":memory:", config=config)) as database, ExitStack() as held:
        database.execute(ALWAYS)
        if not named and LISTING.search(text):
            _list(database, source, held)
        elif source.folder is not None:
            _open_folder(database, held.enter_context(ExportedFiles(source.folder)), named)
        elif named:
            found = source.gather(named, graph or ("edges" in named or None))
            for name, batches in found.tables.items():
                _fill(database, table_of(name), batches)
            _refuse_missing(named - found.tables.keys(), "this snapshot")
        for setting in AFTER:
            database.execute(setting)
        return _ask(database, duckdb, text, room // 2)


def _list(database: Any, source: Source, held: ExitStack) -> None:
    """Create all tables, for a query that lists the tables. The tables stay empty if the source is a process or a core,
    because reading it would take long."""
    found = source.gather(ALL, None).tables if source.is_kept else {}
    if source.folder is not None:
        files = held.enter_context(ExportedFiles(source.folder))
        _open_all(database, files, [table.name for table in TABLES])
        return
    for table in TABLES:
        if table.name in found or not source.is_kept:
            _fill(database, table, found.get(table.name, small(table, [])))


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise missing("sql", "DuckDB", "sql") from None
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise missing("sql", "pyarrow", "sql") from None
    return duckdb


def _named(database: Any, duckdb: Any, text: str) -> set[str]:
    """Return the names of the tables that a query uses. Raises UsageError for anything but a single query."""
    statements = _checked(duckdb, lambda: database.extract_statements(text))
    if len(statements) != 1:
        raise UsageError(f"gdbheap sql: give one query at a time, not {len(statements)}")
    # EXPORT DATABASE creates a folder before it fails for lack of access.
    if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.MULTI):
        raise UsageError("gdbheap sql: give a query: SELECT, FROM, WITH, PIVOT, SUMMARIZE, DESCRIBE")
    known = {table.name for table in TABLES}
    words = known & set(re.findall(r"\w+", text.lower()))
    if "query" in text.lower():
        return words
    try:
        return known & {name.lower() for name in database.get_table_names(text)}
    except duckdb.Error:
        # DuckDB cannot analyse some statements (PIVOT). Then take every table whose name is in the text.
        return words


def _ask(database: Any, duckdb: Any, text: str, room: int) -> Answered:
    """Run the query and return its answer. The query runs in a separate thread, because DuckDB blocks the signal of
    Ctrl-C in the thread in which it works."""
    stopped = Event()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(_answered, database, duckdb, text, room, stopped)
        try:
            while not answer.done():
                wait([answer], HEARD)
        except BaseException:
            stopped.set()
            # An interrupt has no effect before the query has begun, so repeat it.
            while not answer.done():
                database.interrupt()
                wait([answer], HEARD)
            raise
    return answer.result()


def _answered(database: Any, duckdb: Any, text: str, room: int, stopped: Event) -> Answered:
    found = _checked(duckdb, lambda: database.execute(text))
    if found.description is None:
        return Answered([], [])
    columns = [QueryColumn(name, str(kind)) for name, kind, *_rest in found.description]
    return Answered(columns, _rows(lambda: _checked(duckdb, found.fetchone), room, stopped))


def _rows(fetch: Callable[[], Any], room: int, stopped: Event) -> list[list[Any]]:
    """Return all rows, or fewer if the query was interrupted. Raises GdbheapError if the rows take more than ``room``
    bytes."""
    rows: list[list[Any]] = []
    size = 0
    # Fetch one row at a time: a file may claim a long string for each of many rows.
    while not stopped.is_set() and (row := fetch()) is not None:
        rows.append([_plain(value) for value in row])
        size += sum(map(_size, rows[-1]))
        if size > room:
            raise GdbheapError(
                f"gdbheap sql: the result has more than the {len(rows):,} rows that fit into memory: add LIMIT"
            )
    return rows


def _size(value: Any) -> int:
    """Return roughly how many bytes a value takes in memory until it is printed."""
    if isinstance(value, list):
        return CELL + sum(map(_size, value))
    if isinstance(value, dict):
        return CELL + sum(len(name) + _size(item) for name, item in value.items())
    return CELL + (len(value) if isinstance(value, str) else 0)


def _checked(duckdb: Any, ask: Callable[[], Any]) -> Any:
    """Call a function of DuckDB. Convert its errors, and the ValueErrors that it raises for invalid text, into a
    UsageError of one line."""
    try:
        return ask()
    except (duckdb.Error, ValueError, OverflowError) as error:
        # After the first line DuckDB shows the query. Arrow appends where the error occurred.
        reason = str(error).strip().split("\n\n")[0].split(". Detail: Python exception")[0]
        unknown = UNKNOWN.search(reason)
        if unknown is not None:
            # DuckDB's own suggestions would include internal names.
            reason = f"{unknown[0]}: the tables are {', '.join(table.name for table in TABLES)}"
        raise UsageError(f"gdbheap sql: {one_line(reason)}") from None


def _plain(value: Any) -> Any:
    """Return a value that can be written as JSON. Values of types that JSON lacks, such as dates, become strings; so do
    infinity and NaN.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return str(value)


def _fill(database: Any, table: ExportTable, batches: Batches) -> None:
    rows = reader_of(table, batches)
    database.register("gathered", rows)
    _checked(_duckdb(), lambda: database.execute(f'CREATE TABLE "{table.name}" AS SELECT * FROM gathered'))
    database.unregister("gathered")


def _open_folder(database: Any, files: ExportedFiles, named: Collection[str]) -> None:
    """Create a view of the files in an export folder for each table in ``named``. Raises UsageError if a table is
    missing."""
    _refuse_missing(set(named) - _open_all(database, files, named), one_line(files.folder))
    database.execute(f"SET allowed_paths = [{', '.join(map(_quoted, files.paths))}]")


def _refuse_missing(names: Collection[str], where: str) -> None:
    if names:
        raise UsageError(f"gdbheap sql: {where} has no table {', '.join(sorted(names))}")


def _open_all(database: Any, files: ExportedFiles, names: Collection[str]) -> set[str]:
    with StoredTables(os.path.join(files.folder, DATABASE), partial(files.open, DATABASE)) as stored:
        return {name for name in names if _open(database, files, name, stored)}


def _open(database: Any, files: ExportedFiles, name: str, stored: StoredTables) -> bool:
    table = table_of(name)
    types = "{" + ", ".join(f"{_quoted(one.name)}: {_quoted(TYPES[one.kind])}" for one in table.columns) + "}"
    for form, more in ((PARQUET, ""), (CSV, f", header = true, auto_detect = false, columns = {types}")):
        path = files.hold(f"{name}.{form}")
        if path is not None:
            if form == PARQUET:
                _check_parquet(database, files, [path])
            _view(database, name, f"read_{form}({_quoted(path)}{more})")
            return True
    found = files.hold_parts(name)
    if found:
        _check_parquet(database, files, found)
        _view(database, name, f"read_parquet({_listed(found)}, hive_partitioning = true, union_by_name = true)")
        return True
    return files.has(DATABASE) and _copy(database, stored, table)


def _copy(database: Any, stored: StoredTables, table: ExportTable) -> bool:
    """Copy a table from the SQLite database; to read it directly, DuckDB would have to download an extension. Return
    whether the database has the table."""
    found = stored.batches(table)
    if found is None:
        return False
    _fill(database, table, small(table, []))
    for batch in found:
        database.register("gathered", reader_of(table, partial(iter, [batch])))
        _checked(_duckdb(), lambda: database.execute(f'INSERT INTO "{table.name}" SELECT * FROM gathered'))
        database.unregister("gathered")
    return True


def _check_parquet(database: Any, files: ExportedFiles, paths: Sequence[str]) -> None:
    """Raise UsageError if no export can have written one of these files.

    A forged file may have too many rows for its size, or columns or a compression that no export writes. A few bytes
    can encode billions of rows or list items.
    """

    def asked(query: str) -> Any:
        return _checked(_duckdb(), lambda: database.execute(query.format(paths=_listed(paths))).fetchall())

    rows = {path: (is_ours, count) for path, is_ours, count in asked(ROWS_OF_PARQUET)}
    for path, is_flat in asked(COLUMNS_OF_PARQUET):
        place, size = files.held[path]
        is_ours, count = rows.get(path, (True, 0))
        whole = one_line(os.path.join(files.folder, place))
        if not (is_ours and is_flat):
            raise UsageError(f"gdbheap sql: {whole} is not a table that gdbheap wrote")
        if count > MOST_ROWS_A_BYTE * size:
            raise UsageError(f"gdbheap sql: {whole} is damaged: it claims {count:,} rows in {size:,} bytes")


def _listed(paths: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, map(_plain_path, paths)))}]"


def _plain_path(path: str) -> str:
    """Return the path unchanged. Raises UsageError if it contains a pattern character, because DuckDB cannot escape
    such a character."""
    if set(path) & set("*?["):
        raise UsageError(
            f"gdbheap sql: {one_line(path)} has a character that DuckDB takes for a pattern: rename the folder"
        )
    return path


def _view(database: Any, name: str, reader: str) -> None:
    import duckdb

    _checked(duckdb, lambda: database.execute(f'CREATE VIEW "{name}" AS SELECT * FROM {reader}'))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
