"""``gdbheap sql``: the queries of docs/queries.md are run on a real process and agree with the commands; a query
reaches no file and no network; a wrong one gets one line."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.busy import wait_for
from support.library import heap_of
from support.programs import (
    GDBHEAP,
    KINDS,
    PATIENCE,
    Running,
    ask,
    gdbheap,
    has_no_answer,
    interpreter_of,
    python_program,
    running,
)

from gdbheap.export.gathered import gather
from gdbheap.export.query import Answered, query
from gdbheap.export.source import Source
from gdbheap.report.words.findings import words_of

pytestmark = pytest.mark.cases(8)

pytest.importorskip("duckdb", reason="the extra gdbheap[sql] is not installed")
pytest.importorskip("pyarrow", reason="the extra gdbheap[sql] is not installed")

PAGE = Path(__file__).resolve().parent.parent / "docs" / "queries.md"
QUERIES = dict(re.findall(r"^## ([^\n]*)\n(?:(?!^## ).)*?```sql\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
# All but the last of many blocks are freed, so their memory could be given back.
FREED = "import os; held = [bytearray(3000) for _ in range(30000)]; del held[:-1]; os.read(0, 1)"
FINDINGS = "What should be done, and what is it worth?"
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a Python process with objects of many kinds, and threads."""
    folder = tmp_path_factory.mktemp("asked")
    with running(python_program(KINDS[0], "secret_texts", "not-to-be-shown", 300), folder) as found:
        yield found


@pytest.fixture(scope="module")
def source(target: Running) -> Source:
    """Return all its tables, read once."""
    with heap_of(str(target.pid)) as heap:
        heap.disclosure.contents = False
        found = gather(heap, words_of, graph=True)
    return Source("", lambda _names, _graph: found)


def named(found: Answered) -> Rows:
    """Return rows by their columns' names."""
    return [dict(zip((column.name for column in found.columns), row)) for row in found.rows]


def _same_types(rows: Rows, pid: str) -> None:
    types = {row["type"]: row for row in ask("pyobjects", pid)["rows"]}
    assert all((row["count"], row["bytes"], row["buffers"]) == (
        types[row["type"]]["count"], types[row["type"]]["own"], types[row["type"]]["buffers"]) for row in rows
    )  # fmt: skip
    together = sorted((row["bytes"] for row in types.values()), reverse=True)
    assert [row["together"] for row in rows] == together[: len(rows)]


def _same_counts(rows: Rows, pid: str) -> None:
    types = {row["type"]: row for row in ask("pyobjects", pid)["rows"]}
    for row in rows:
        assert row["small"] + row["middling"] + row["large"] == types[row["type"]]["count"]
        assert row["bytes"] == types[row["type"]]["own"]


def _same_sums(rows: Rows, pid: str) -> None:
    used = ask("pyobjects", pid)["all_used"]
    assert (sum(row["blocks"] for row in rows), sum(row["bytes"] for row in rows)) == (used["count"], used["bytes"])


def _same_holes(rows: Rows, pid: str) -> None:
    holes = ask("holes", pid, "--min=1")
    sums = {key: holes["total"][key] for key in ("bytes", "resident")}
    assert rows[-1] == {"sizes": None, "holes": holes["count"], **sums}


def _same_ledger(rows: Rows, pid: str) -> None:
    roots = {row["id"]: row["resident"] for row in ask("", pid, "--detail")["ledger"] if row["parent"] is None}
    found = {row["id"]: row["resident"] for row in rows}
    # Reading a page of a file that was not in memory brings it there.
    assert found.pop("file") <= roots.pop("file") and found == roots


def _same_arenas(rows: Rows, pid: str) -> None:
    arenas = {row["index"]: (row["system"], row["in_use"]) for row in ask("arenas", pid)["rows"]}
    assert {row["index"]: (row["system"], row["in_use"]) for row in rows} == arenas


def _same_retained(rows: Rows, pid: str) -> None:
    listed = {f"{row['address']:#x}": row["retained"] for row in ask("retained", pid)["rows"] if row["address"]}
    assert listed.keys() & {row["address"] for row in rows}
    assert all(listed.get(row["address"], row["retained"]) == row["retained"] for row in rows)


def _same_referrers(rows: Rows, pid: str) -> None:
    # heap refs counts referrers; a holder may refer twice, and a buffer's owner stands for it.
    count = ask("refs", pid, rows[0]["address"], "--top=all")["count"]
    assert 0 < count <= rows[0]["referrers"]


def _same_look(rows: Rows, pid: str) -> None:
    document = ask("", pid)
    (row,) = rows
    target = document["target"]
    assert (row["pid"], row["trim"]) == (int(pid), document["reclaimable"])
    assert (row["host"], row["exe"], row["python"]) == (target["host"], target["exe"], target["python"])


def _same_threads(rows: Rows, pid: str) -> None:
    assert {row["tid"] for row in rows} == set(map(int, os.listdir(f"/proc/{pid}/task")))


SAME: dict[str, Callable[[Rows, str], None]] = {
    "Which types hold the memory?": _same_types,
    "What is in use, by allocator?": _same_sums,
    "How are the sizes of blocks distributed?": _same_sums,
    "How large are the holes, and how much of them is resident?": _same_holes,
    "How many objects of each type are small, and how many are large?": _same_counts,
    "Where did RSS go?": _same_ledger,
    "How much of each arena of malloc is free?": _same_arenas,
    "Which objects retain the most?": _same_retained,
    "Which blocks have the most references to them?": _same_referrers,
    "How much of their stacks do threads use?": _same_threads,
    "Which process is this, and how much could malloc_trim() return?": _same_look,
}


def test_page() -> None:
    """Check that there are enough queries, and that the compared ones are among them."""
    assert len(QUERIES) >= 15 and {*SAME, FINDINGS} <= QUERIES.keys()


def test_findings(tmp_path: Path) -> None:
    """Check that findings have the words of heap, for a process, an export, and a snapshot."""
    folder, look = str(tmp_path / "tables"), str(tmp_path / "look.heap")
    with running([interpreter_of(KINDS[0]), "-c", FREED], tmp_path) as target:
        pid = str(target.pid)
        said = {row["id"]: (row["bytes"], row["text"], row["advice"]) for row in ask("", pid, "--detail")["findings"]}
        assert gdbheap("export", pid, "-o", folder, "--tables=findings").returncode == 0
        assert gdbheap("snapshot", pid, look).returncode == 0
        assert said
        for subject in (pid, folder, look):
            rows = json.loads(gdbheap("sql", subject, QUERIES[FINDINGS], "--json").stdout)["rows"]
            assert {name: (size, text, advice) for size, name, text, advice in rows} == said, subject


@pytest.mark.parametrize("title", [title for title in QUERIES if title != FINDINGS])
def test_query(title: str, target: Running, source: Source) -> None:
    """Check that a query has rows, no column twice, and no column without values."""
    found = query(source, QUERIES[title])
    names = [column.name for column in found.columns]
    assert found.rows and len(set(names)) == len(names) >= 3
    assert all(len(row) == len(names) for row in found.rows)
    assert all(any(row[place] is not None for row in found.rows) for place in range(len(names))), names
    if title in SAME:
        SAME[title](named(found), str(target.pid))


def test_forms(target: Running, tmp_path: Path) -> None:
    """Check that a process, its exports in any format, and a snapshot give one answer, and so do a table, JSON and
    CSV."""
    pid, text = str(target.pid), "SELECT type, count(*) n, sum(size) s FROM blocks GROUP BY type ORDER BY 3 DESC, 1"
    subjects = [pid, str(tmp_path / "look.heap")]
    assert gdbheap("snapshot", pid, subjects[1], "--blocks").returncode == 0
    for form in ("parquet", "csv", "sqlite"):
        subjects.append(str(tmp_path / form))
        assert gdbheap("export", pid, "-o", subjects[-1], f"--format={form}", "--tables=blocks").returncode == 0
    parts = str(tmp_path / "parts")
    assert gdbheap("export", pid, "-o", parts, "--partition=host=a b,pid", "--tables=blocks").returncode == 0
    answers = []
    for subject in [*subjects, parts]:
        done = gdbheap("sql", subject, text, "--json")
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    assert all(answer["rows"] == answers[0]["rows"] for answer in answers)
    assert answers[0]["target"]["pid"] == target.pid and len(answers[0]["rows"]) > 10
    assert [column["name"] for column in answers[0]["columns"]] == ["type", "n", "s"]
    lines = list(csv.reader(gdbheap("sql", subjects[2], text, "--csv").stdout.splitlines()))
    assert lines[0] == ["type", "n", "s"]
    assert [[cells[0] or None, *map(int, cells[1:])] for cells in lines[1:]] == answers[0]["rows"]
    shown = gdbheap("sql", subjects[2], text, "--top=3").stdout
    assert f"{answers[0]['rows'][0][2]:,}" in shown and "more rows" in shown
    where = gdbheap("sql", parts, "SELECT DISTINCT host, pid FROM blocks", "--csv").stdout
    assert where.split() == ["host,pid", "a", f"b,{pid}"]


class _Caught(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.met.append(self.path)  # type: ignore[attr-defined]
        self.send_error(404)

    do_HEAD = do_GET


def test_shut_off(source: Source, target: Running, tmp_path: Path) -> None:
    """Check that no query reads or writes a file, not even beside the exported ones, uses the network, or enables
    either again."""
    with HTTPServer(("127.0.0.1", 0), _Caught) as server:
        server.met = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/x.csv"
        (tmp_path / "mine.csv").write_text("a\n1\n")
        folder = tmp_path / "tables"
        assert gdbheap("export", str(target.pid), "-o", str(folder), "--tables=types").returncode == 0
        before = sorted(tmp_path.rglob("*"))
        for subject in (source, Source("", source.gather, str(folder))):
            for text in (
                f"SELECT * FROM '{tmp_path}/mine.csv'",
                f"SELECT * FROM read_csv('{tmp_path}/mine.csv'), types",
                f"SELECT * FROM read_text('{tmp_path}/*'), types",
                f"SELECT * FROM glob('{tmp_path}/*')",
                f"COPY types TO '{tmp_path}/out.csv'",
                f"COPY (SELECT 1) TO '{tmp_path}/out.parquet'",
                f"ATTACH '{tmp_path}/out.db'",
                f"EXPORT DATABASE '{tmp_path}/all'",
                f"SELECT * FROM read_csv('{url}')",
                "INSTALL httpfs", "LOAD httpfs", "SET enable_external_access = true", "SET lock_configuration = false",
                f"SET temp_directory = '{tmp_path}/spill'",
                "SELECT * FROM source", "SELECT * FROM found", "CREATE TABLE a AS SELECT 1",
                "EXPLAIN ANALYZE COPY types TO 'x'", f"COPY types TO '{folder}/out.csv'",
            ):  # fmt: skip
                with pytest.raises(Exception, match="gdbheap sql: ") as error:
                    query(subject, text)
                assert "\n" not in str(error.value)
        assert sorted(tmp_path.rglob("*")) == before
        assert server.met == []  # type: ignore[attr-defined]
        server.shutdown()


def test_opens_no_file(source: Source, tmp_path: Path) -> None:
    """Check that not even the analysis of a query reads a file that the query names: the time of the last read would be
    newer than that of the last write, and so would it be after a read of ours."""
    mine = tmp_path / "mine.csv"
    mine.write_text("a\n1\n")

    def is_read(read: Callable[[], object]) -> bool:
        os.utime(mine, ns=(0, 10**9))
        read()
        return mine.stat().st_atime_ns != 0

    for text in (f"SELECT * FROM read_csv('{mine}')", f"SELECT * FROM read_csv('{mine}'), types WHERE 'edges' = ''"):

        def ask(text: str = text) -> None:
            with pytest.raises(Exception, match="gdbheap sql: "):
                query(source, text)

        assert not is_read(ask), text
    if not is_read(mine.read_text):
        pytest.skip("this file system keeps no times of reads")


def test_bad_lines(target: Running, tmp_path: Path) -> None:
    """Check one line and the status of a wrong usage; if possible nothing of the process is read before."""
    pid, look = str(target.pid), str(tmp_path / "look.heap")
    assert gdbheap("snapshot", pid, look).returncode == 0
    (tmp_path / "empty").mkdir()
    for words, status, reason in (
        ([], 2, "which process or core"),
        ([pid], 2, "which query?"),
        ([pid, "selec"], 2, "syntax error"),
        ([pid, "SELECT 1; SELECT 2"], 2, "one query at a time"),
        ([pid, ""], 2, "one query at a time"),
        ([pid, "SELECT * FROM heaps"], 2, "heaps does not exist: the tables are snapshots, ledger"),
        ([pid, "show heaps"], 2, "heaps does not exist: the tables are snapshots, ledger"),
        ([pid, "SELECT nothing FROM types"], 2, "nothing"),
        ([pid, "SELECT error('first' || chr(10) || 'second')"], 2, "first second"),
        ([pid, "SELECT 1", "SELECT 2"], 2, "unrecognized"),
        ([pid, "SELECT 1", "--csv", "--json"], 2, "exclude each other"),
        (["999999999", "SELECT * FROM types"], 4, "999999999"),
        ([look, "SELECT * FROM edges"], 2, "does not contain edges"),
        ([look, "SELECT * FROM types, edges"], 2, "no table edges"),
        ([look, "SELECT * FROM objects"], 2, "does not contain objects: export the process"),
        ([str(tmp_path / "empty"), "SELECT * FROM types"], 2, "has no table types"),
        ([str(PAGE), "SELECT * FROM types"], 4, "queries.md"),
    ):
        done = gdbheap("sql", *words)
        assert (done.returncode, done.stderr.count("\n")) == (status, 1), (words, done.stderr)
        assert reason in done.stderr and has_no_answer(done), (words, done.stderr)


def test_what_tables_there_are(target: Running, tmp_path: Path) -> None:
    """Check that SHOW TABLES has the tables of docs/data.md, or those that a snapshot or a folder has."""
    pid, look, folder = str(target.pid), str(tmp_path / "look.heap"), tmp_path / "tables"
    page = PAGE.with_name("data.md").read_text()
    every = re.findall(r"^## `?(\w+)`?$", page, re.MULTILINE)
    assert gdbheap("snapshot", pid, look).returncode == 0
    assert gdbheap("export", pid, "-o", str(folder), "--tables=types,threads").returncode == 0
    known = {pid: set(every), str(folder): {"snapshots", "types", "threads"}}
    for text in ("show tables", "SHOW TABLES;", "select table_name from information_schema.tables"):
        found = {subject: gdbheap("sql", subject, text, "--csv") for subject in (*known, look)}
        names = {subject: set(done.stdout.split()[1:]) for subject, done in found.items()}
        assert {subject: names[subject] for subject in known} == known and len(every) == 11, found
        assert {"snapshots", "types", "ledger"} <= names[look] and "edges" not in names[look]
    both = "SELECT count(*) FROM threads, information_schema.schemata WHERE schema_name = 'information_schema'"
    done = gdbheap("sql", pid, both, "--json")
    assert json.loads(done.stdout)["rows"][0][0] >= len(os.listdir(f"/proc/{pid}/task"))


def test_what_can_be_pasted(target: Running) -> None:
    """Check that addresses, process ids and times can be typed again, that sizes are readable, and that JSON has
    plain numbers."""
    pid = str(target.pid)
    text = "SELECT max(address), pid, time, 12345 * count(*) AS many FROM blocks, snapshots GROUP BY pid, time"
    (row,) = json.loads(gdbheap("sql", pid, text, "--json").stdout)["rows"]
    shown = gdbheap("sql", pid, text).stdout.splitlines()
    address, shown_pid, moment, many = shown[2].split()
    assert ask("at", pid, address)["block"]["address"] == row[0] == int(address, 16)
    assert (shown_pid, many) == (pid, f"{row[3]:,}") and moment.partition(".")[0].isdecimal()


def test_only_what_is_named(source: Source) -> None:
    """Check that only the tables that a query names are made; if it may name others indirectly, all its words count."""
    asked: list[set[str]] = []

    def remember(names: Any, graph: bool | None) -> Any:
        asked.append(set(names))
        return source.gather(names, graph)

    counting = Source("", remember)
    for text, names in (
        ("SELECT 1", None),
        ("SELECT 'blocks' FROM Types", {"types"}),
        ("WITH holes AS (SELECT 1) SELECT * FROM holes, arenas", {"arenas"}),
        ("PIVOT types ON type USING sum(bytes)", {"types"}),
        ("SELECT * FROM query_table('threads')", {"threads"}),
        ("SUMMARIZE holes", {"holes"}),
        ("DESCRIBE threads", {"threads"}),
    ):
        asked.clear()
        query(counting, text)
        assert asked == ([] if names is None else [names]), text


def test_values(source: Source) -> None:
    """Check that a value that JSON cannot express is a text, and that others are unchanged."""
    found = query(
        source, "SELECT 1::HUGEINT << 100, 'inf'::DOUBLE, NULL, true, [1, NULL], {'a': DATE '2020-01-02'}, 0.5"
    )
    assert found.rows == [[1 << 100, "inf", None, True, [1, None], {"a": "2020-01-02"}, "0.5"]]
    json.dumps(found.rows)


def test_interrupted(target: Running) -> None:
    """Check that Ctrl-C works while DuckDB runs."""
    text = "SELECT sum(length(number::varchar)) FROM range(1000000000000) AS numbers(number)"
    command = [str(GDBHEAP), "sql", str(target.pid), text]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: _is_busy(process.pid), "DuckDB does not work")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1 and said.count("\n") == 1 and "interrupted" in said, said


def _is_busy(pid: int) -> bool:
    """Return whether another thread of a process than its first has worked for a fifth of a second: others wait for
    a query."""
    worked = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        # A thread may end meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            stat = Path(f"/proc/{pid}/task/{tid}/stat").read_text()
            worked = max(worked, int(stat.rpartition(")")[2].split()[11]) if tid != str(pid) else 0)
    return worked * 5 > os.sysconf("SC_CLK_TCK")
