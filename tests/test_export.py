"""``gdbheap export``: the tables in three formats agree with each other, with the commands, the kernel and the
allocator; the folder is complete or does not exist."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.programs import (
    GDBHEAP,
    KINDS,
    SOURCES,
    Running,
    ask,
    c_program,
    gdbheap,
    python_program,
    running,
    tracer,
)  # fmt: skip
from support.scripts import script

from gdbheap.errors import Unsupported
from gdbheap.export.batches import Constant, NumberColumn, TextColumn, small, values_of
from gdbheap.export.declaration import CSV, FLAG, FORMATS, INTEGER, PARQUET, REAL, SQLITE, TABLES, TEXT, table_of
from gdbheap.export.table_export import check
from gdbheap.export.table_files import DATABASE

pytestmark = pytest.mark.cases(2)

SECRET = "a-secret-that-no-table-may-have"
Row = dict[str, Any]
READ = {INTEGER: int, TEXT: str, REAL: float, FLAG: lambda text: text == "true"}


def rows_of(form: str, folder: Path, name: str) -> list[Row]:
    """Return the rows of a table, read by libraries of others."""
    table = table_of(name)
    if form == CSV:
        with open(folder / f"{name}.csv", newline="", encoding="utf-8") as stream:
            found = list(csv.DictReader(stream))
        kinds = {column.name: READ[column.kind] for column in table.columns}
        return [{key: kinds[key](text) if text else None for key, text in row.items()} for row in found]
    if form == SQLITE:
        with closing(sqlite3.connect(folder / DATABASE)) as database:
            cursor = database.execute(f'SELECT * FROM "{name}"')
            names = [column[0] for column in cursor.description]
            found = [dict(zip(names, row)) for row in cursor]
        flags = [column.name for column in table.columns if column.kind == FLAG]
        return [{**row, **{flag: bool(row[flag]) for flag in flags}} for row in found]
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra gdbheap[parquet] is not installed")
    rows: list[Row] = parquet.read_table(folder / f"{name}.parquet").to_pylist()
    return rows


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a Python process with a secret in its memory, and a few threads."""
    folder = tmp_path_factory.mktemp("secrets")
    with running(python_program(KINDS[0], "secret_texts", SECRET, 300), folder) as found:
        yield found


@pytest.fixture(scope="module")
def folders(target: Running, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the exported folders by format; without pyarrow there is no Parquet."""
    above, found = tmp_path_factory.mktemp("exports"), {}
    for form in FORMATS:
        done = gdbheap("export", str(target.pid), "-o", str(above / form), f"--format={form}")
        if form == PARQUET and "pip install 'gdbheap[parquet]'" in done.stderr:
            continue
        assert done.returncode == 0, done.stderr
        found[form] = above / form
        # Reading a page of a file that was not in memory brings it there, so later exports have other figures.
        (above / f"{form}.rollup").write_text(Path(f"/proc/{target.pid}/smaps_rollup").read_text())
    return found


def test_same_rows(folders: dict[str, Path]) -> None:
    """Check that all formats have the same rows, except for the time."""
    for table in TABLES:
        found = [Counter(map(repr, _without_time(rows_of(form, folders[form], table.name)))) for form in folders]
        assert found[0] == found[-1] and found[1] == found[-1], table.name
        assert table.name == "findings" or found[0], table.name


def _without_time(rows: list[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key not in ("time", "virtual")} for row in rows]


def test_sums(target: Running, folders: dict[str, Path]) -> None:
    """Check that the tables agree with the commands, and the kernel's figures with the kernel."""
    pid, folder = str(target.pid), folders[CSV]
    tables = {table.name: rows_of(CSV, folder, table.name) for table in TABLES}
    objects = ask("pyobjects", pid)
    columns = {"type": "type", "count": "count", "bytes": "own", "buffers": "buffers", "reached": "reached"}
    listed = [{name: row[key] for name, key in columns.items()} for row in objects["rows"]]
    assert sorted(map(repr, tables["types"])) == sorted(map(repr, listed))
    assert _sums(tables["blocks"]) == (objects["all_used"]["count"], objects["all_used"]["bytes"])
    by_type = Counter(row["type"] for row in tables["objects"])
    assert by_type == Counter({row["type"]: row["count"] for row in tables["types"] if row["count"]})
    assert Counter(row["type"] for row in tables["blocks"] if row["type"]) == by_type
    for row in tables["types"]:
        assert sum(one["size"] for one in tables["objects"] if one["type"] == row["type"]) == row["bytes"], row
    holes = ask("holes", pid, "--min=1")
    assert _sums(tables["holes"]) == (holes["count"], holes["total"]["bytes"])
    assert sum(row["resident"] for row in tables["holes"]) == holes["total"]["resident"]
    arenas = ask("arenas", pid)["rows"]
    keys = {name: name.replace("_chunks", "_count") for name in table_of("arenas").names}
    assert tables["arenas"] == [{name: row[key] for name, key in keys.items()} for row in arenas]
    lines = {row["id"]: row for row in ask("", pid, "--detail")["ledger"]}
    assert tables["ledger"] and all(lines[row["id"]]["resident"] == row["resident"] for row in tables["ledger"])
    (look,) = tables["snapshots"]
    rollup = Path(f"{folder}.rollup").read_text()
    rss = 1024 * next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Rss:"))
    assert (look["pid"], look["rss"]) == (target.pid, rss)
    # The kernel counts pages of the vdso nowhere, and gdbheap's own shared pages at another moment.
    assert sum(row["resident"] for row in tables["mappings"]) == rss
    maps = [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if not line.endswith("[vsyscall]")]
    assert [f"{row['start'] & (1 << 64) - 1:x}-{row['end'] & (1 << 64) - 1:x}" for row in tables["mappings"]] == [
        line.split()[0].lstrip("0") for line in maps
    ]
    assert sorted(row["tid"] for row in tables["threads"]) == sorted(map(int, os.listdir(f"/proc/{pid}/task")))


def _sums(rows: list[Row]) -> tuple[int, int]:
    return len(rows), sum(row["size"] for row in rows)


def test_references(target: Running, folders: dict[str, Path]) -> None:
    """Check that edges lead from blocks or roots to blocks or static types, and that the retained bytes are those of
    heap retained."""
    form, folder = next(iter(folders.items()))
    blocks = {row["address"]: row for row in rows_of(form, folder, "blocks")}
    edges = rows_of(form, folder, "edges")
    assert all((row["source"] is None) != (row["root"] is None) for row in edges)
    inside = [row for row in edges if row["source"] in blocks and row["target"] in blocks]
    assert len(inside) > len(edges) / 2
    objects = {row["address"]: row for row in rows_of(form, folder, "objects")}
    assert all(blocks[row["block"]]["type"] == row["type"] for row in objects.values())
    rows = ask("retained", str(target.pid), "--top=50")["rows"]
    retained = [row for row in rows if row["address"] is not None]
    assert retained and all(objects[row["address"]]["retained"] == row["retained"] for row in retained)
    of_one = retained[0]["address"]
    refs = ask("refs", f"{target.pid}", f"{of_one:#x}", "--top=all")["rows"]
    sources = {row["source"] for row in edges if row["target"] == objects[of_one]["block"]} - {None}
    known = {objects[row["address"]]["block"] for row in refs if row["address"] in objects}
    # An object that refers through its own buffer.
    through = {row["source"] for row in edges if row["target"] in sources}
    assert known <= sources | through


def test_core_and_snapshot(target: Running, tmp_path: Path) -> None:
    """Check that a core has the same blocks and objects, and so has a snapshot that kept them, which has no edges."""
    pid, look = str(target.pid), tmp_path / "look.heap"
    only = "--tables=blocks,objects,types,mappings,edges"
    assert gdbheap("snapshot", pid, str(look), "--blocks").returncode == 0
    for number, subject in enumerate((pid, str(target.gcore()), str(look))):
        done = gdbheap("export", subject, "-o", str(tmp_path / str(number)), "--format=csv", only)
        assert done.returncode == (subject == str(look)), done.stderr
    assert f"Left out: {look} does not contain edges" in done.stdout
    live, core, kept = (tmp_path / str(number) for number in range(3))
    assert rows_of(CSV, live, "types") == rows_of(CSV, core, "types") == rows_of(CSV, kept, "types")
    # Reading pages of files makes them resident.
    of_live, of_kept = (
        [{**row, "resident": None if row["path"] else row["resident"]} for row in rows_of(CSV, folder, "mappings")]
        for folder in (live, kept)
    )
    assert of_live and of_live == of_kept
    for table, columns in (
        ("blocks", ("address", "size", "allocator", "type")),
        ("objects", ("address", "block", "size", "type")),
    ):
        counted = [
            Counter(tuple(row[name] for name in columns) for row in rows_of(CSV, folder, table))
            for folder in (live, core, kept)
        ]
        assert counted[0] and counted[0] == counted[1] == counted[2], table
    assert rows_of(CSV, core, "snapshots")[0]["kind"] == "core"
    assert sorted(os.listdir(kept)) == ["blocks.csv", "mappings.csv", "objects.csv", "snapshots.csv", "types.csv"]


def test_older_snapshots(target: Running, tmp_path: Path) -> None:
    """Check that a snapshot without the objects' places in their blocks and without mappings has the other tables.

    If the places do not fit the blocks, one line says that they are left out.
    """
    look, other = tmp_path / "look.heap", tmp_path / "other.heap"
    assert gdbheap("snapshot", str(target.pid), str(look), "--blocks").returncode == 0
    with zipfile.ZipFile(look) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    offsets = entries.pop("blocks/offsets")
    document = json.loads(entries.pop("snapshot.json"))
    assert document.pop("mappings")
    for more, table, status, text in (
        ({}, "objects", 1, "does not contain objects"),
        ({}, "mappings", 1, "does not contain mappings"),
        ({}, "blocks", 0, ""),
        ({"blocks/offsets": offsets}, "objects", 0, ""),
        ({"blocks/offsets": offsets[:-1]}, "objects", 2, "damaged"),
    ):
        with zipfile.ZipFile(other, "w") as archive:
            for name, content in {"snapshot.json": json.dumps(document), **entries, **more}.items():
                archive.writestr(name, content)
        done = gdbheap("export", str(other), "-o", str(tmp_path / "out"), "--format=csv", f"--tables={table}")
        assert done.returncode == status, (table, more.keys(), done.stderr)
        assert text in (done.stderr if status == 2 else done.stdout) and done.stderr.count("\n") == (status == 2)


def test_without_python(rng: random.Random, tmp_path: Path) -> None:
    """Check that blocks of C++ have the kinds of heap chunks, and that malloc's own sums equal those of its blocks."""
    compiler = shutil.which("g++") or pytest.skip("no g++")
    program = tmp_path / "classes"
    subprocess.run([compiler, "-O1", "-s", str(SOURCES / "classes.cc"), "-o", str(program)], check=True)
    with running([str(program)], tmp_path) as target:
        done = gdbheap("export", str(target.pid), "-o", str(tmp_path / "tables"), "--format=csv")
        assert done.returncode == 0, done.stderr
        kinds = ask("chunks", str(target.pid), "--by=type")
    tables = tmp_path / "tables"
    types = {row["type"]: (row["count"], row["bytes"]) for row in rows_of(CSV, tables, "types")}
    assert types == {row["type"]: (row["count"], row["bytes"]) for row in kinds["rows"]}
    blocks = rows_of(CSV, tables, "blocks")
    assert _sums(blocks) == (kinds["total"]["count"], kinds["total"]["bytes"])
    assert Counter(row["type"] for row in blocks if row["type"]) == {name: count for name, (count, _) in types.items()}
    assert rows_of(CSV, tables, "objects") == [] and rows_of(CSV, tables, "edges") != []
    with running(c_program("holes", rng.randrange(1 << 30), 20, 30_000, 1, 0, tmp_path / "table"), tmp_path) as target:
        done = gdbheap("export", str(target.pid), "-o", str(tables), "--format=csv", "--tables=blocks,arenas")
        assert done.returncode == 0, done.stderr
    used = sum(row["used_chunks"] for row in rows_of(CSV, tables, "arenas"))
    assert len([row for row in rows_of(CSV, tables, "blocks") if row["allocator"] == "glibc"]) == used
    assert not (tables / "edges.csv").exists(), "an older export was not replaced as a whole"


def test_no_contents(folders: dict[str, Path]) -> None:
    """Check that no file has the secret, in any packed form."""
    for form, folder in folders.items():
        for table in TABLES:
            assert SECRET not in repr(rows_of(form, folder, table.name)), (form, table.name)
        if form != PARQUET:
            assert not any(SECRET.encode() in path.read_bytes() for path in folder.iterdir())


def test_bad_lines(target: Running, tmp_path: Path) -> None:
    """Check that wrong command lines end with one line and the right exit status before anything is written."""
    pid, out = str(target.pid), str(tmp_path / "out")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("keep me")
    for words, status, reason in (
        ([], 2, "which process or core"),
        ([pid], 2, "say where to write"),
        ([pid, "-o", out, "--format=xls"], 2, "is not one of"),
        ([pid, "-o", out, "--tables=blocks,heaps"], 2, "is not one of"),
        ([pid, pid, "-o", out], 2, "needs its own folder"),
        ([pid, "-o", out, "--partition=rack"], 2, "needs a value"),
        ([pid, "-o", out, "--partition=pid=1,pid=2"], 2, "a key twice"),
        ([pid, "-o", out, "--partition=size=1"], 2, "is a column of"),
        ([pid, "-o", out, "--partition=pid", "--format=sqlite"], 2, "a single file"),
        ([pid, "-o", "s3://bucket/heaps"], 2, "needs --partition"),
        ([pid, "-o", str(tmp_path / "no" / "folder"), "--format=csv"], 2, "there is no folder"),
        ([pid, "-o", str(tmp_path / "taken"), "--format=csv"], 2, "it has files that gdbheap did not make"),
        ([pid, "-o", str(tmp_path / "taken" / "mine.txt"), "--format=csv"], 2, "it is not a folder"),
        ([str(tmp_path / "taken" / "mine.txt"), "-o", out, "--format=csv"], 4, "mine.txt"),
        ([pid, "-o", out, "--format=heapsnapshot", "--tables=blocks"], 2, "one file"),
        (["999999999", "-o", out, "--format=csv"], 4, "999999999"),
    ):
        done = gdbheap("export", *words)
        assert (done.returncode, done.stderr.count("\n")) == (status, 1), (words, done.stderr)
        assert reason in done.stderr and not done.stdout, (words, done.stderr)
    assert os.listdir(tmp_path) == ["taken"] and os.listdir(tmp_path / "taken") == ["mine.txt"]


@pytest.mark.parametrize("form", FORMATS)
def test_full_disk(form: str, folders: dict[str, Path], target: Running, tmp_path: Path) -> None:
    """Check that a full disk ends the command in one line, and that only the older export is left."""
    if form not in folders:
        pytest.skip("the extra gdbheap[parquet] is not installed")
    out = tmp_path / "out"
    limits = (20_000, 20_000)
    for older in (False, True):
        if older:
            shutil.copytree(folders[form], out)
        done = gdbheap(
            "export", str(target.pid), "-o", str(out), f"--format={form}",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
        )  # fmt: skip
        assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "cannot be written" in done.stderr, done.stderr
        assert os.listdir(tmp_path) == (["out"] if older else [])
    assert sorted(os.listdir(out)) == sorted(os.listdir(folders[form]))


def test_interrupted(rng: random.Random, target: Running, tmp_path: Path) -> None:
    """Check Ctrl-C at any moment: one line, and the folder is complete or does not exist."""
    command = [str(GDBHEAP), "export", str(target.pid), "-o", str(tmp_path / "out"), "--format=sqlite"]
    began = time.monotonic()
    assert subprocess.run(command, capture_output=True).returncode == 0
    usual = time.monotonic() - began
    shutil.rmtree(tmp_path / "out")
    stopped = 0
    for number in range(4):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # Before that, a signal may end Python while it starts. The first one comes while the process is stopped.
        while process.poll() is None and tracer(target.pid) != process.pid:
            pass
        time.sleep(usual * rng.uniform(0, 0.7) if number else 0)
        process.send_signal(signal.SIGINT)
        _out, errors = process.communicate()
        there = os.listdir(tmp_path)
        assert there in ([], ["out"]), there
        if there:
            with closing(sqlite3.connect(tmp_path / "out" / DATABASE)) as database:
                assert database.execute("SELECT count(*) FROM snapshots").fetchone() == (1,)
            shutil.rmtree(tmp_path / "out")
        else:
            stopped += 1
            assert process.returncode == 1 and errors.count("\n") == 1 and "interrupted" in errors, errors
    assert stopped


def test_a_database_is_one_file(target: Running, tmp_path: Path) -> None:
    """Check that a database is named once, with its size, and that its tables have their rows."""
    done = gdbheap("export", str(target.pid), "-o", str(tmp_path / "out"), "--format=sqlite", "--bytes")
    size = f"{(tmp_path / 'out' / DATABASE).stat().st_size:,}"
    assert done.stdout.count(DATABASE) == 1 and done.stdout.count(size) == 1, done.stdout
    assert all(re.search(rf"^{table.name} +[\d,]+$", done.stdout, re.MULTILINE) for table in TABLES)


def test_schemas(folders: dict[str, Path]) -> None:
    """Check that every format has the columns of the declaration, that the page describes them, and that Trino's
    statements name them."""
    root, written = Path(__file__).parent.parent, script("table_docs")
    assert written.page() == (root / "docs" / "data.md").read_text()
    assert written.statements() == (root / "deploy" / "trino.sql").read_text()
    with closing(sqlite3.connect(folders[SQLITE] / DATABASE)) as database:
        for table in TABLES:
            found = database.execute(f'PRAGMA table_info("{table.name}")').fetchall()
            assert [(row[1], bool(row[3])) for row in found] == [(one.name, not one.may_lack) for one in table.columns]
    if PARQUET not in folders:
        pytest.skip("the extra gdbheap[parquet] is not installed")
    import pyarrow.parquet

    kinds = {INTEGER: "int64", TEXT: "string", REAL: "double", FLAG: "bool"}
    for table in TABLES:
        schema = pyarrow.parquet.read_schema(folders[PARQUET] / f"{table.name}.parquet")
        for column, field in zip(table.columns, schema):
            assert (field.name, str(field.type), field.nullable) == (column.name, kinds[column.kind], column.may_lack)
        assert len(schema) == len(table.columns)
        assert json.loads(schema.metadata[b"gdbheap"])["columns"] == list(map(vars, table.columns))


def test_cells() -> None:
    """Check that addresses in the kernel's half are negative, and that longer values are cut to 64 bits."""
    rows = [(1 << 63, (1 << 64) - 1, 0, "r", 1 << 70, None, None, None)]
    (batch,) = small(table_of("mappings"), rows)()
    assert [cells[0] for cells in batch.columns[:5] if isinstance(cells, list)] == [-(1 << 63), -1, 0, "r", 0]
    words = NumberColumn((5).to_bytes(8, "little") + (-7).to_bytes(8, "little", signed=True))
    codes = TextColumn((1).to_bytes(4, "little") + bytes(4), [None, "x"])
    assert [*map(list, (values_of(cells, 2) for cells in (words, codes, Constant(3))))] == [
        [5, -7],
        ["x", None],
        [3, 3],
    ]


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the missing package is named before a process is stopped."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unsupported, match=r"pip install 'gdbheap\[parquet\]'"):
        check("anywhere", PARQUET, ())
