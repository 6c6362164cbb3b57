"""``gdbheap sql`` on folders that another user changed maliciously. Nothing is written next to the export, no planted
query runs, no link is followed, and each command ends with an answer or a refusal.
"""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.attackers import STRANGER
from support.programs import gdbheap

from gdbheap.errors import GdbheapError, UsageError
from gdbheap.export import query as queries
from gdbheap.export import stored
from gdbheap.export.batches import AT_ONCE, Batch, Cells, Constant, TextColumn, small
from gdbheap.export.declaration import CSV, PARQUET, SQLITE, TABLES, TEXT, table_of
from gdbheap.export.gathered import Gathered
from gdbheap.export.query import query
from gdbheap.export.source import Source
from gdbheap.export.table_files import DATABASE, write

duckdb = pytest.importorskip("duckdb", reason="the extra gdbheap[sql] is not installed")
pytest.importorskip("pyarrow", reason="the extra gdbheap[sql] is not installed")

TYPES = table_of("types")
NAMES = ", ".join(TYPES.names)
SUM = "SELECT count(*), sum(bytes) FROM types"
PAGE = 512
NUMBERS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT "


def exported(folder: Path, form: str = SQLITE, rows: int = 3, name: str = "str") -> Path:
    """Write a table of types, each of 7 bytes; return its file."""
    folder.mkdir(exist_ok=True)
    values = {"type": name, "bytes": 7}
    write(str(folder), form, [("types", small(TYPES, [[values.get(name, 1) for name in TYPES.names]] * rows))])
    return folder / (DATABASE if form == SQLITE else f"types.{form}")


def source_of(folder: Path) -> Source:
    """Return the source for the tables in a folder."""

    def gather(*_: object) -> Gathered:
        raise AssertionError("a folder is not gathered")

    return Source("", gather, str(folder))


def changed(path: Path, *statements: str) -> None:
    """Change a database."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in statements:
            database.execute(statement)


def seen(folder: Path) -> list[tuple[str, int, int]]:
    """Return the names in a folder, their owners, and the times of their last change."""
    return [(str(path), path.lstat().st_uid, path.lstat().st_mtime_ns) for path in (folder, *sorted(folder.iterdir()))]


def test_nothing_beside(tmp_path: Path) -> None:
    """Check that a database with another user's log is read, and that no file appears next to it, not even for a
    moment.
    """
    database = exported(tmp_path / "tables")
    changed(database, "PRAGMA journal_mode = WAL")
    if os.geteuid() == 0:
        for path in (database, database.parent):
            os.chown(path, STRANGER, STRANGER)
    before = seen(database.parent)
    done = gdbheap("sql", str(database.parent), SUM, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["rows"] == [[3, 21]], done.stderr
    assert seen(database.parent) == before


@pytest.mark.parametrize("end", ["-journal", "-wal", "-shm"])
def test_planted_beside(end: str, tmp_path: Path) -> None:
    """Check that a pipe in the place of a journal is not waited for."""
    database = exported(tmp_path / "tables")
    if end != "-journal":
        changed(database, "PRAGMA journal_mode = WAL")
    os.mkfifo(f"{database}{end}")
    done = gdbheap("sql", str(database.parent), SUM, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["rows"] == [[3, 21]], done.stderr


def _view(values: Callable[[str], str]) -> list[str]:
    cells = ", ".join(f'{values(name)} AS "{name}"' for name in TYPES.names)
    return ["DROP TABLE types", f"CREATE VIEW types AS {NUMBERS}{cells} FROM c"]


def _again(columns: str, kind: str = "TABLE types") -> list[str]:
    return ["DROP TABLE types", f"CREATE {kind} ({columns})"]


def _declared(more: str) -> str:
    return ", ".join(f'"{name}" {"TEXT" if name == "type" else "INTEGER"}{more}' for name in TYPES.names)


HOSTILE = {
    "endless": _view(lambda name: "'a'" if name == "type" else "x"),
    "large": _view(lambda name: "printf('%.*c', 20000000, 'x')" if name == "type" else "x"),
    "virtual": _again(NAMES, "VIRTUAL TABLE types USING fts3"),
    "generated": _again(f"{_declared('')}, also TEXT AS (hex(zeroblob(1000)))"),
    "default": _again(_declared(" DEFAULT 1")),
    "fewer": _again('"type" TEXT'),
    "other types": _again(_declared("").replace("INTEGER", "TEXT")),
    "blob": ["UPDATE types SET bytes = x'00ff'"],
    "text": ["UPDATE types SET bytes = 'many'"],
    "nothing": [*_again(_declared("")), "INSERT INTO types DEFAULT VALUES"],
}


@pytest.mark.parametrize("kind", sorted(HOSTILE))
def test_not_ours(kind: str, tmp_path: Path) -> None:
    """Check that a database that no export wrote is refused in one line before any of it runs."""
    database = exported(tmp_path / "tables")
    try:
        changed(database, *HOSTILE[kind])
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite cannot make such a file: {error}")
    reason = f"{database}: types is not a table that gdbheap wrote"
    if kind == "endless":
        done = gdbheap("sql", str(database.parent), SUM)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gdbheap: {reason}\n")
        return
    with pytest.raises(UsageError) as error:
        query(source_of(database.parent), SUM)
    assert str(error.value) == reason


def test_damaged_texts(tmp_path: Path) -> None:
    """Check that an invalid text, and one of impossible length, are refused in one line."""
    database = exported(tmp_path / "tables")
    for value in ("CAST(x'ff' AS TEXT)", "printf('%.*c', 2000000, 'x')"):
        changed(database, f"UPDATE types SET type = {value}")
        with pytest.raises(UsageError, match=DATABASE) as error:
            query(source_of(database.parent), SUM)
        assert "\n" not in str(error.value)


def _circling(database: Path, levels: int) -> None:
    """Let each page of a table's tree lead to the next one many times, so that its rows repeat."""
    changed(database, f"PRAGMA page_size = {PAGE}", "PRAGMA journal_mode = DELETE", "VACUUM")
    with closing(sqlite3.connect(database)) as opened:
        (root,) = opened.execute("SELECT rootpage FROM sqlite_master").fetchone()
    pages = bytearray(database.read_bytes())
    count = len(pages) // PAGE
    kept = pages[(root - 1) * PAGE : root * PAGE]
    assert kept[0] == 5
    (leaf,) = struct.unpack_from(">I", kept, 8)
    while pages[(leaf - 1) * PAGE] == 5:
        (leaf,) = struct.unpack_from(">I", pages, (leaf - 1) * PAGE + 8)
    for level in range(levels):
        following = count + level + 1 if level < levels - 1 else leaf
        page = bytearray(kept)
        struct.pack_into(">I", page, 8, following)
        for cell in struct.unpack_from(f">{struct.unpack_from('>H', kept, 3)[0]}H", kept, 12):
            struct.pack_into(">I", page, cell, following)
        start = (root - 1 if level == 0 else count + level - 1) * PAGE
        pages[start : start + PAGE] = page
    struct.pack_into(">I", pages, 28, len(pages) // PAGE)
    database.write_bytes(pages)


def test_circles(tmp_path: Path) -> None:
    """Check that a tree of pages without an end is refused once it has more pages than fit into the file."""
    database = exported(tmp_path / "tables", rows=400)
    _circling(database, 12)
    done = gdbheap("sql", str(database.parent), SUM)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "types is not a table that gdbheap wrote" in done.stderr


def test_no_room_for_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that one line reports the missing room, and that nothing is left."""
    database = exported(tmp_path / "tables")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("gdbheap.export.stored.disk_left", lambda _descriptor: 10)
    with pytest.raises(GdbheapError, match="set TMPDIR to a folder with more"):
        query(source_of(database.parent), SUM)
    assert list(tmp_path.iterdir()) == [database.parent]


def test_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a sparse file of a gigabyte takes no room as a copy and that its hole is not read, and that a
    file that is no database is not copied."""
    database = exported(tmp_path / "tables")
    size = database.stat().st_size
    os.truncate(database, 1 << 30)
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda *asked: read.append(asked[1]) or pread(*asked))
    taken: list[int] = []
    connect = stored.sqlite3.connect

    def connected(path: str, **options: object) -> sqlite3.Connection:
        taken.append(os.stat(path.partition(":")[2].partition("?")[0]).st_blocks * 512)
        return connect(path, **options)  # type: ignore[no-any-return, call-overload]

    monkeypatch.setattr(stored.sqlite3, "connect", connected)
    assert query(source_of(database.parent), SUM).rows == [[3, 21]] and max(taken) < 4 << 20
    assert size <= sum(read) < size + (64 << 10)
    database.write_bytes(b"")
    os.truncate(database, 1 << 30)
    with pytest.raises(UsageError, match="not an SQLite database"):
        query(source_of(database.parent), SUM)
    assert len(taken) == 1


@pytest.mark.parametrize("link", ["types", "types/pid=1", "types/pid=1/data.parquet"])
def test_links(link: str, tmp_path: Path) -> None:
    """Check that no link in a partition is followed."""
    elsewhere = exported(tmp_path / "elsewhere", PARQUET)
    path = tmp_path / "tables" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(elsewhere if link.endswith(PARQUET) else elsewhere.parent)
    with pytest.raises(UsageError, match="has no table types"):
        query(source_of(tmp_path / "tables"), SUM)


def test_large_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check a small file whose rows exceed all memory: the kept rows and DuckDB's own memory have a limit."""
    folder = exported(tmp_path / "tables", PARQUET, 100_000, "x" * 1000).parent
    monkeypatch.setattr("gdbheap.export.query.room_for_copy", lambda: 0)
    assert query(source_of(folder), SUM).rows == [[100_000, 700_000]]
    with pytest.raises(GdbheapError, match="add LIMIT"):
        query(source_of(folder), "SELECT * FROM types")
    with pytest.raises(UsageError, match="(?i)memory"):
        query(source_of(folder), "SELECT list(type || bytes) FROM types")


def number_of(value: int) -> bytes:
    """Return a number without a sign in Thrift's compact protocol."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + number_of(value >> 7)


def structure(*fields: tuple[int, int, bytes]) -> bytes:
    """Return a structure of that protocol: (number, type, value) of each field, ascending."""
    found, last = b"", 0
    for place, kind, value in fields:
        found, last = found + bytes([(place - last) << 4 | kind]) + value, place
    return found + b"\0"


def signed(value: int) -> bytes:
    """Return a number with a sign."""
    return number_of(value << 1)


def listed(kind: int, *items: bytes) -> bytes:
    """Return a list of few items."""
    return bytes([len(items) << 4 | kind]) + b"".join(items)


INT32, INT64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12


def claiming(pages: int, groups: int = 1, each: int = 2**31 - 1) -> bytes:
    """Return a Parquet file with one column "bytes" of ones, each page of which claims very many rows in a few
    bytes; ``groups`` of rows have the same pages."""
    values = b"\x01" + number_of(each << 1) + b"\0"
    size = (2, INT32, signed(len(values))), (3, INT32, signed(len(values)))
    header = structure((1, INT32, signed(2)), (2, INT32, signed(8)), (3, INT32, signed(8)),
                       (7, STRUCT, structure((1, INT32, signed(1)), (2, INT32, signed(0)))))  # fmt: skip
    terms = structure((1, INT32, signed(each)), (2, INT32, signed(8)), (3, INT32, signed(3)), (4, INT32, signed(3)))
    page = structure((1, INT32, signed(0)), *size, (5, STRUCT, terms)) + values
    body = b"PAR1" + header + struct.pack("<q", 1)
    start, rows, length = len(body), each * pages, len(header) + 8 + len(page) * pages
    text = number_of(5) + b"bytes"
    column = structure(
        (1, INT32, signed(2)), (2, LIST, listed(INT32, signed(8), signed(0))), (3, LIST, listed(BINARY, text)),
        (4, INT32, signed(0)), (5, INT64, signed(rows)), (6, INT64, signed(length)), (7, INT64, signed(length)),
        (9, INT64, signed(start)), (11, INT64, signed(4)),
    )  # fmt: skip
    group = structure((1, LIST, listed(STRUCT, structure((2, INT64, signed(4)), (3, STRUCT, column)))),
                      (2, INT64, signed(length)), (3, INT64, signed(rows)))  # fmt: skip
    schema = listed(STRUCT, structure((4, BINARY, number_of(6) + b"schema"), (5, INT32, signed(1))),
                    structure((1, INT32, signed(2)), (3, INT32, signed(0)), (4, BINARY, text)))  # fmt: skip
    footer = structure((1, INT32, signed(1)), (2, LIST, schema), (3, INT64, signed(rows * groups)),
                       (4, LIST, listed(STRUCT, *[group] * groups)))  # fmt: skip
    return body + page * pages + footer + struct.pack("<I", len(footer)) + b"PAR1"


CLAIMS = {
    "pages": claiming(1000),
    "groups": claiming(10, 14, 1 << 24),
    "hole": claiming(10, 1, 1 << 24),
}


@pytest.mark.parametrize("place", ["types.parquet", "types/pid=1/data.parquet"])
@pytest.mark.parametrize("kind", CLAIMS)
def test_rows_that_no_bytes_hold(kind: str, place: str, tmp_path: Path) -> None:
    """Check that a few bytes that claim very many equal rows are refused before any is read; a hole in the file does
    not count."""
    path, asked = tmp_path / place, "SELECT count(bytes), sum(bytes) FROM types"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(claiming(3, 2, 10))
    assert query(source_of(tmp_path), asked).rows == [[60, 60]]
    path.write_bytes(CLAIMS[kind])
    if kind == "hole":
        # After a terabyte of zeros, since offsets count from the beginning.
        end = path.stat().st_size
        footer = struct.unpack("<I", CLAIMS[kind][-8:-4])[0] + 8
        with path.open("r+b") as file:
            file.truncate(end - footer)
            file.truncate(1 << 40)
            file.seek(0, os.SEEK_END)
            file.write(CLAIMS[kind][-footer:])
    with pytest.raises(UsageError, match=f"{path} is damaged: it claims [0-9,]+ rows") as error:
        query(source_of(tmp_path), asked)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["list", "struct", "brotli"])
def test_columns_that_no_export_has(kind: str, tmp_path: Path) -> None:
    """Check that columns of lists and expanding encodings are refused: a row may be billions of values, and a byte
    millions."""
    kinds = {"list": "[7, 8]", "struct": "{'a': 7}", "brotli": "7"}
    more = ", COMPRESSION brotli" if kind == "brotli" else ""
    path = tmp_path / "types.parquet"
    duckdb.execute(f"COPY (SELECT {kinds[kind]} AS bytes) TO '{path}' (FORMAT parquet{more})")
    with pytest.raises(UsageError, match=f"{path} is not a table that gdbheap wrote"):
        query(source_of(tmp_path), "SELECT count(*) FROM types")


@pytest.mark.parametrize("name", [table.name for table in TABLES])
def test_the_densest_export_is_read(name: str, tmp_path: Path) -> None:
    """Check that equal rows, which take the fewest bytes, are read."""
    table = table_of(name)
    batch = Batch(AT_ONCE, [Constant("x" if column.kind == TEXT else 1) for column in table.columns])
    write(str(tmp_path), PARQUET, [(name, lambda: iter([batch] * 4))])
    assert query(source_of(tmp_path), f"SELECT count(*) FROM {name}").rows == [[4 * AT_ONCE]]


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_endless_list(is_interrupted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the search for a table takes a bounded number of steps, and that Ctrl-C ends it."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    folder = exported(tmp_path / "tables").parent
    monkeypatch.setattr("gdbheap.export.stored.STEP", 1)
    if is_interrupted:
        monkeypatch.setattr("gdbheap.export.stored.StoredTables._step", interrupted)
    else:
        monkeypatch.setattr("gdbheap.export.stored.STEPS", 0)
    with pytest.raises(KeyboardInterrupt if is_interrupted else UsageError) as error:
        query(source_of(folder), SUM)
    assert is_interrupted or str(error.value) == f"{folder / DATABASE}: its list of tables is endless"


@pytest.mark.parametrize("form", ["list", "coded", "constant"])
def test_texts_without_an_encoding(form: str, tmp_path: Path) -> None:
    """Check that a name that is no valid UTF-8 is written as far as possible in each kind of column, and so is the
    rest."""
    table, name = table_of("blocks"), "evil\ud800"
    texts: Cells = [name, name]
    if form != "list":
        texts = Constant(name) if form == "constant" else TextColumn(struct.pack("<II", 1, 1), [None, name])
    columns: list[Cells] = [texts if column.kind == TEXT else [1, 1] for column in table.columns]
    assert write(str(tmp_path), SQLITE, [(table.name, lambda: iter([Batch(2, columns)]))])[0].rows == 2
    chosen = next(column.name for column in table.columns if column.kind == TEXT)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database:
        assert database.execute(f"SELECT {chosen} FROM {table.name}").fetchall() == [("evil?",)] * 2


def plant_pipe(path: Path) -> None:
    """Make a pipe without a writer."""
    os.mkfifo(path)


def plant_kernels(path: Path) -> None:
    """Make a link to a file of the kernel."""
    path.symlink_to("/proc/version")


def plant_secret(path: Path) -> None:
    """Make a link to a file that its maker may not read."""
    path.symlink_to("/etc/shadow")


PLANTS = [plant_pipe, plant_kernels, plant_secret]
FORMS = [CSV, PARQUET, SQLITE]


@pytest.mark.in_turn("form", 1)
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("form", FORMS)
def test_planted_instead(form: str, plant: Callable[[Path], None], tmp_path: Path) -> None:
    """Check that a pipe or a link in the place of a table is refused and not opened."""
    path = exported(tmp_path / "tables", form)
    path.unlink()
    plant(path)
    with pytest.raises(UsageError, match=f"{path} cannot be read: it is not a regular file"):
        query(source_of(path.parent), SUM)


@pytest.mark.in_turn("place", 1)
@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("place", ["types.csv", "types.parquet", "types/host=a/pid=1/data.parquet"])
def test_swapped_names(
    place: str, plant: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that DuckDB reads the file that was checked, even if its name is replaced in between."""
    file = exported(tmp_path / "written", place.rpartition(".")[2])
    path = tmp_path / "tables" / place
    path.parent.mkdir(parents=True)
    file.rename(path)
    planted, aside = tmp_path / "planted", tmp_path / "aside"
    plant(planted)
    view = queries._view

    def swapped(*arguments: Any) -> None:
        path.rename(aside)
        planted.rename(path)
        view(*arguments)

    monkeypatch.setattr(queries, "_view", swapped)
    columns = ", min(host), min(pid)" if "/" in place else ""
    (row,) = query(source_of(tmp_path / "tables"), SUM.replace(" FROM", f"{columns} FROM")).rows
    assert row == [3, 21, "a", 1][: len(row)]
    assert path.is_symlink() or not path.is_file()


def test_many_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a table can have more partition files than may usually be open, and that a link and a pipe among them
    are left out.
    """
    file, tables = exported(tmp_path / "written", PARQUET), tmp_path / "tables" / "types"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        for number in range(60):
            (tables / f"pid={number}").mkdir(parents=True)
            os.link(file, tables / f"pid={number}" / "data.parquet")
        (tables / "pid=1" / "another.parquet").symlink_to(file)
        os.mkfifo(tables / "pid=1" / "pipe.parquet")
        assert query(source_of(tmp_path / "tables"), SUM).rows == [[180, 420 * 3]]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
