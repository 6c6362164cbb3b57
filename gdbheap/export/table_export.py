"""Export the tables of processes, cores and snapshots to files. Each file is written completely or not at all."""

from __future__ import annotations

import io
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field

from gdbheap.dataclass import dataclass
from gdbheap.errors import Unsupported, UsageError, reason_of
from gdbheap.export import table_files
from gdbheap.export.arrow import pyarrow
from gdbheap.export.declaration import PARQUET, SNAPSHOTS, SQLITE
from gdbheap.export.gathered import Gathered
from gdbheap.export.heapsnapshot import write_graph
from gdbheap.export.partitions import (
    PartitionKey,
    check_columns,
    check_url,
    destination_of,
    is_url,
    put,
    values_of_parts,
)
from gdbheap.export.source import Source
from gdbheap.files import (
    PRIVATE,
    check_folder,
    check_place,
    check_writable,
    is_folder,
    make_folder,
    not_written,
    replacing,
    replacing_folder,
    temporary_folder,
    working_folder,
)

__all__ = ["Exported", "TableFile", "Terms", "check", "export", "export_graph"]


@dataclass(frozen=True)
class Terms:
    """The rules for writing files.

    ``mode``: the permissions of the files.
    ``csv_safe``: write CSV that is safe to open in a spreadsheet.
    """

    mode: int = PRIVATE
    csv_safe: bool = False


@dataclass(frozen=True)
class TableFile:
    """A table that was written. ``file``: the path of its file below the export folder; ``size``: the size of the file
    in bytes."""

    name: str
    row_count: int
    file: str
    size: int


@dataclass(frozen=True)
class Exported:
    """The answer of ``gdbheap export``: the tables that were written, and a line for each target or table that was left
    out."""

    folder: str
    format: str
    look_count: int
    rows: list[TableFile]
    left_out: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no target and no table was left out."""
        return not self.left_out


def check(path: str, form: str, parts: Sequence[PartitionKey]) -> None:
    """Check the arguments of an export before a process is stopped. Raises UsageError, and Unsupported if a library is
    missing."""
    check_columns(parts)
    if form == PARQUET:
        pyarrow()
    if parts and form == SQLITE:
        raise UsageError(
            "gdbheap export: --partition works only with parquet and csv, because a database is a single file"
        )
    if is_url(path):
        check_url(path)
    elif parts and is_folder(path):
        check_place(path)
    else:
        check_folder(path, table_files.is_ours)


def export(
    looks: Iterable[Gathered], path: str, form: str, parts: Sequence[PartitionKey] = (), terms: Terms | None = None
) -> Exported:
    """Write the tables of each process, core or snapshot as it is gathered. Leave out each process, core or snapshot
    whose tables cannot be written.

    If nothing can be written, raise the last error: UsageError, or Unsupported if a library is missing."""
    terms = terms or Terms()
    written: list[TableFile] = []
    missed: list[str] = []
    count = 0
    failed: Exception | None = None
    for look in looks:
        # Read the name now, because the tables are dropped while they are written.
        name = look.identity["core"] or f"process {look.identity['pid']}"
        try:
            written += _in_parts(look, path, form, parts, terms) if parts else _alone(look, path, form, terms)
            count += 1
        except Exception as error:
            failed = error
            missed.append(f"{name}: {reason_of(error)}")
    if failed is not None and not count:
        raise failed
    return Exported(path, form, count, written, missed)


def export_graph(source: Source, path: str, mode: int = PRIVATE) -> Exported:
    """Write the graph of references to one file. Raises UsageError if the file cannot be written, and Unsupported if
    there is no graph."""
    check_writable(path)
    found = source.gather((), True).graph
    if found is None:
        raise Unsupported(f"{source.name}: gdbheap cannot follow references here, so it has no graph to export")
    with replacing(path, mode) as stream, io.TextIOWrapper(stream, encoding="utf-8", errors="replace") as text:
        nodes = write_graph(text, found)
        text.flush()
        size = os.fstat(stream.fileno()).st_size
    return Exported(path, "heapsnapshot", 1, [TableFile("graph", nodes, os.path.basename(path), size)])


def _alone(look: Gathered, path: str, form: str, terms: Terms) -> list[TableFile]:
    with _as_files(path), replacing_folder(path, table_files.is_ours, terms.mode) as folder:
        return _sized(folder, table_files.write(folder, form, look.let_go(), csv_safe=terms.csv_safe))


def _in_parts(look: Gathered, path: str, form: str, parts: Sequence[PartitionKey], terms: Terms) -> list[TableFile]:
    values = values_of_parts(parts, look.identity)
    with _as_files(path), _working_folder(path, terms.mode) as folder:
        written = _sized(folder, table_files.write(folder, form, look.let_go(), tuple(values), terms.csv_safe))
        # The table of snapshots comes last: whoever finds its row finds the other tables complete.
        written.sort(key=lambda table: table.name == SNAPSHOTS)
        places = {_destination(table, values): table for table in written}
        put(path, {place: os.path.join(folder, table.file) for place, table in places.items()}, terms.mode)
    return [TableFile(table.name, table.row_count, place, table.size) for place, table in places.items()]


def _working_folder(path: str, mode: int) -> AbstractContextManager[str]:
    """Return a new working folder next to the files' destination, so that a rename moves them there.

    The folder is hidden, so that no reader takes it for a partition.
    """
    if is_url(path):
        return temporary_folder()
    make_folder(path, mode)
    return working_folder(path)


def _destination(table: TableFile, values: dict[str, str]) -> str:
    return destination_of(table.name, values, table.file) if values else table.file


def _sized(folder: str, written: Sequence[table_files.WrittenTable]) -> list[TableFile]:
    sizes = {table.file: os.stat(os.path.join(folder, table.file)).st_size for table in written}
    return [TableFile(table.name, table.rows, table.file, sizes[table.file]) for table in written]


@contextmanager
def _as_files(path: str) -> Iterator[None]:
    """Convert an error of writing into a UsageError of one line."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise not_written(path, error) from None
    except sqlite3.Error as error:
        raise UsageError(f"{path} cannot be written: {error}") from None
