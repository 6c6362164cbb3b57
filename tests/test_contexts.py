"""PostgreSQL's memory contexts, compared with the server's own figures about the same backend."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.library import heap_of
from support.postgresql import VERSIONS, Server, cluster
from support.programs import ask, build, c_program, gdbheap, running

from gdbheap.contents.postgresql import contexts
from gdbheap.contents.postgresql.contexts import PostgresqlContent
from gdbheap.errors import Unsupported
from gdbheap.findings.contexts.rule import OF_STATEMENTS

SCHEMA = "select array_agg(c.relname) from pg_class c join pg_attribute a on a.attrelid = c.oid"
CONTEXTS = "select name, coalesce(ident, ''), level, total_bytes, free_bytes from pg_backend_memory_contexts"
# Contexts that a query needs while it runs, and the parents of a session's commands: the view sees its own.
OF_QUERIES = {
    "TopMemoryContext", "MessageContext", "TopPortalContext", "TopTransactionContext", "PortalContext", "ExecutorState",
    "ExprContext", "Table function arguments", "printtup", "CurTransactionContext",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Yield the folder of a server that runs until the tests are done."""
    with cluster() as root:
        yield root


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    """Yield a new session of the server."""
    found = Server(folder)
    try:
        yield found
    finally:
        found.close()


def rows_of(target: str) -> list[tuple[str, int, int, int]]:
    """Return gdbheap's rows in the form of the server's log."""
    with heap_of(target) as heap:
        return [
            (found.name, found.level, found.total, found.free) for found in heap.content(PostgresqlContent).contexts
        ]


def without_ident(rows: list[tuple[str, int, int, int]]) -> list[tuple[str, int, int, int]]:
    """Return rows of the log without idents in the names. The name of a hash table is an ident."""
    return [(re.sub(r"^(?!dynahash)(.*?): .*|^dynahash: (.*)", r"\1\2", name), *rest) for name, *rest in rows]


def core_of(pid: int, folder: Path) -> str:
    """Return a core of the process, written by gdb."""
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    command = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(pid)]
    subprocess.run([*command, "-ex", f"gcore {folder / 'core'}"], check=True, capture_output=True)
    return str(folder / "core")


@pytest.mark.parametrize("query", ["hash", "sort", "idle"])
def test_each_context_is_what_the_backend_writes(
    query: str, server: Server, tmp_path: Path, rng: random.Random
) -> None:
    """Check names, levels, bytes and free bytes of all contexts in tree order, of a process and of its core."""
    server.ask(SCHEMA)
    rows = rng.randrange(200_000, 300_000)
    if query != "idle":
        server.ask("begin")
        chosen = {
            "hash": f"select md5((g % {rows // 2})::text), count(*) from generate_series(1, {rows}) g group by 1",
            "sort": f"select md5(g::text) t, repeat('x', g % 50) from generate_series(1, {rows}) g order by t",
        }
        server.ask(f"set work_mem = '256MB'; declare one cursor for {chosen[query]}; fetch 3 from one")
    told = without_ident(server.told())
    assert rows_of(str(server.pid)) == told
    assert rows_of(core_of(server.pid, tmp_path)) == told
    if query == "hash":
        answer = ask("contexts", str(server.pid), "--top=1")
        largest = max(told, key=lambda row: row[2])
        (row,) = answer["rows"]
        assert (row["name"], row["level"], row["bytes"], row["free"]) == largest
        assert row["used"] == row["bytes"] - row["free"]
        assert "HashAgg meta context" in {name for name, *_rest in told}
        assert (answer["count"], answer["total"]["bytes"]) == (len(told), sum(row[2] for row in told))
        found = {row["id"]: row for row in ask("", str(server.pid))["findings"]}["postgresql-context"]
        # The finding sums up contexts with equal names.
        by_name: dict[str, list[int]] = {}
        for name, _level, size, free, *_rest in told:
            sums = by_name.setdefault(name, [0, 0, 0])
            by_name[name] = [sums[0] + size, sums[1] + free, sums[2] + 1]
        name, (total, free, count) = max(by_name.items(), key=lambda item: item[1][0])
        assert name in found["text"] and found["figures"] == {"total": total, "free": free, "count": count}


def test_a_sender_of_changes(server: Server, rng: random.Random) -> None:
    """Check the slabs and generations of a sender too, while it waits for changes."""
    receiver = VERSIONS[-1].parent / "pg_recvlogical"
    if not receiver.exists() or not list(Path("/usr/lib/postgresql").glob("*/lib/test_decoding.so")):
        pytest.skip("no pg_recvlogical, or no test_decoding")
    server.ask("create table if not exists written (number int)")
    command = [str(receiver), "-h", str(server.folder), "-U", "tester", "-d", "postgres", "--slot", "gdbheap"]
    subprocess.run([*command, "--create-slot", "-P", "test_decoding"], check=True)
    run = subprocess.Popen([*command, "--start", "-f", "-"], stdout=subprocess.PIPE, text=True)
    try:
        server.ask(f"insert into written select generate_series(1, {rng.randrange(1000, 9000)})")
        assert run.stdout is not None and next(line for line in run.stdout if line.startswith("COMMIT"))
        (pid,) = server.ask("select pid from pg_stat_replication")
        told = without_ident(server.told(int(pid)))
        assert {"Change", "TXN", "Tuples"} <= {name for name, *_rest in told}
        assert rows_of(pid) == told
    finally:
        run.kill()
        run.communicate()


def test_each_context_is_what_the_view_says(server: Server) -> None:
    """Check all contexts against the view, except those that the view's own query makes."""
    server.ask(SCHEMA)
    server.ask(CONTEXTS)
    view = Counter(
        (name, ident, int(level), int(total), int(free))
        for name, ident, level, total, free in (line.split("\t") for line in server.ask(CONTEXTS))
        if name not in OF_QUERIES
    )
    rows = ask("contexts", str(server.pid), "--top=all", "--sort=tree")["rows"]
    ours = Counter(
        (row["name"], row["ident"] or "", row["level"], row["bytes"], row["free"])
        for row in rows
        if row["name"] not in OF_QUERIES
    )
    assert sum(view.values()) > 50 and ours == view


def test_blocks_are_said_to_be_a_contexts(server: Server) -> None:
    """Check that ``heap at`` names the context of a block."""
    with heap_of(str(server.pid)) as heap:
        found = max(heap.content(PostgresqlContent).contexts, key=lambda context: context.total)
        start = found.blocks[-1][0]
    assert f"block of memory context {found.name}" in ask("at", str(server.pid), hex(start))["owner"]["what"]


def test_tree(server: Server, tmp_path: Path) -> None:
    """Check that the tree has each context above its parent, with the same used and free bytes as the rows."""
    server.ask("prepare drawn as select 1 as swordfish")
    path = tmp_path / "tree"
    answer = ask("contexts", str(server.pid), "--top=all", "--sort=tree", "--format=folded", "-o", str(path))
    lines = [line.rpartition(" ") for line in path.read_text().splitlines()]
    found = {way: int(size) for way, _blank, size in lines}
    assert sum(found.values()) == answer["total"]["bytes"] and "swordfish" not in path.read_text()
    wanted: Counter[str] = Counter()
    above: list[str] = []
    for row in answer["rows"]:
        above = [*above[: row["level"]], row["name"].replace(";", ":")]
        wanted[";".join(above)] += row["used"]
        wanted[";".join([*above, "free"])] += row["free"]
    assert +wanted == Counter(found)
    printed = gdbheap("contexts", str(server.pid), "--top=1", "--format=folded")
    assert (printed.returncode, printed.stdout) == (0, path.read_text())


def test_contexts_of_one_name_are_summed_up(server: Server, rng: random.Random) -> None:
    """Check the sums of prepared statements against the view, and that DEALLOCATE ALL frees them.

    ``owners`` has a row for each name.
    """
    count = rng.randrange(2000, 2500)
    server.ask(SCHEMA)
    server.ask(f"""do $$ begin for n in 1..{count} loop execute format(
        'prepare p%s(int) as select md5(g::text), %s from generate_series(1, $1) g where g <> %s', n, n, n);
        end loop; end $$""")
    pid = str(server.pid)
    sums = "select name, count(*), sum(total_bytes) from pg_backend_memory_contexts"
    rows_of_view = [row.split("\t") for row in server.ask(f"{sums} where name like 'CachedPlan%' group by 1")]
    told = {name: (int(count), int(size)) for name, count, size in rows_of_view}
    names = {row["name"]: (row["count"], row["bytes"]) for row in ask("contexts", pid)["by_name"]}
    assert told.items() <= names.items() and "CachedPlanSource" in told
    rows = {row["path"]: row for row in ask("owners", pid, "--top=all")["rows"]}
    for name in ("CachedPlanSource", "CachedPlanQuery"):
        assert names[name][0] == count and f"{count:,}" in gdbheap("contexts", pid, "--top=1").stdout
        assert rows[f"{count:,} memory contexts {name}"]["bytes"] >= names[name][1]
    found = {row["id"]: row for row in ask("", pid)["findings"]}["postgresql-context"]
    assert f"{count:,} prepared statements" in found["text"] and "DEALLOCATE ALL" in found["advice"]
    assert found["figures"]["total"] == sum(names.get(name, (0, 0))[1] for name in OF_STATEMENTS)
    server.ask("deallocate all")
    left = {row["name"] for row in ask("contexts", pid)["by_name"]}
    assert not left & set(OF_STATEMENTS)


def test_idents_are_contents(server: Server) -> None:
    """Check that --no-text shows only the length of a query."""
    secret = "select 12345 as swordfish"
    server.ask(f"prepare hidden as {secret}")
    told = ask("contexts", str(server.pid), "--top=all")["rows"]
    assert [row["name"] for row in told if "swordfish" in (row["ident"] or "")]
    done = gdbheap("contexts", str(server.pid), "--top=all", "--no-text")
    assert done.returncode == 0 and "swordfish" not in done.stdout and "<str of" in done.stdout


def test_other_programs_have_none(tmp_path: Path) -> None:
    """Check that other programs give status 5 and one line."""
    with running(c_program("idle"), tmp_path) as target:
        done = gdbheap("contexts", str(target.pid))
        assert done.returncode == 5 and len(done.stderr.splitlines()) == 1 and "not postgres" in done.stderr
        with heap_of(str(target.pid)) as heap, pytest.raises(Unsupported):
            _none = heap.content(PostgresqlContent).contexts


def forged(kind: str, size: int, free: int, folder: Path) -> list[str]:
    """Return the command that starts a backend with forged contexts; gdbheap knows postgres by its name."""
    program = folder / "postgres"
    shutil.copy(build("forged_contexts"), program)
    return [str(program), kind, str(size), str(free)]


@pytest.mark.parametrize("kind", ["slab", "set", "empty"])
def test_made_up_contexts(kind: str, tmp_path: Path, rng: random.Random) -> None:
    """Check that a forged context with valid sizes is read, as a base for the next test."""
    size, free = (1, 0) if kind == "empty" else (rng.randrange(1000, 30000, 8), rng.randrange(900))
    with running(forged(kind, size, free, tmp_path), tmp_path) as target, heap_of(str(target.pid)) as heap:
        (found,) = heap.content(PostgresqlContent).contexts
        wanted = {"slab": 176 + size, "set": size, "empty": 176 + 2 * 4096}[kind]
        assert (found.total, found.free) == (wanted, free)


def forgeries(rng: random.Random) -> Iterator[tuple[str, int, int]]:
    """Yield kinds of contexts with impossible sizes, from just above the mapped memory to beyond 64 bits."""
    beyond = (1 << 64) - rng.randrange(1 << 20, 1 << 40)
    large = rng.randrange(1 << 20, 1 << 32), rng.randrange(1 << 33, 1 << 46), beyond
    yield "slab", large[0] & ~7, rng.randrange(100)
    yield "slab", 4096, rng.randrange(4097, 1 << 32)
    for size in large:
        yield "set", size & ~7, rng.randrange(100)
    yield "set", 8192, rng.randrange(8192, 1 << 40)
    yield "empty", rng.randrange(2, 1 << 32), 0
    yield "twice", rng.randrange(40, 4097), 0
    yield "bare", 0, 0
    yield "link", (1 << 64) - rng.randrange(8, 4096), 0


def test_idents_that_contexts_share(tmp_path: Path, rng: random.Random) -> None:
    """Check that an ident that many contexts share is one text, however many there are."""
    count, length = rng.randrange(1000, 3000), rng.randrange(100, 1000, 2)
    with running(forged("many", count, length, tmp_path), tmp_path) as target, heap_of(str(target.pid)) as heap:
        found = heap.content(PostgresqlContent).contexts[1:]
        assert len(found) == count and {one.ident for one in found} == {"x" * length}
        assert len({id(one.ident) for one in found}) == len({id(one.name) for one in found}) == 1


def test_room_for_idents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rng: random.Random) -> None:
    """Check that idents beyond a limit are left out, and the sums of their contexts are not."""
    room, count, length = rng.randrange(10_000, 100_000), rng.randrange(1000, 3000), rng.randrange(101, 1000, 2)
    monkeypatch.setattr(contexts, "ROOM_FOR_TEXTS", room)
    with running(forged("many", count, length, tmp_path), tmp_path) as target, heap_of(str(target.pid)) as heap:
        found = heap.content(PostgresqlContent).contexts[1:]
        told = [one.ident for one in found if one.ident is not None and one.ident != contexts.CUT]
        assert len(found) == count and all(one.total == 4096 for one in found)
        assert told and room - 2000 < sum(map(sys.getsizeof, told)) <= room
        assert all(text == text[0] * length for text in told)


def test_room_for_shared_idents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rng: random.Random) -> None:
    """Check that one text of many contexts takes limited room in the rows of an answer, too."""
    room, count, length = rng.randrange(20_000, 90_000), rng.randrange(1000, 3000), rng.randrange(100, 1000, 2)
    monkeypatch.setattr(contexts, "ROOM_FOR_COPIES", room)
    with running(forged("many", count, length, tmp_path), tmp_path) as target, heap_of(str(target.pid)) as heap:
        found = heap.content(PostgresqlContent).contexts[1:]
        told = [text for one in found for text in (one.name, one.ident or "") if text != contexts.CUT]
        # Of the name and of the ident, the first one is no copy.
        assert len(found) == count and room - 2000 < sum(map(len, told)) <= room + 2 * length


def test_a_root_with_too_many_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Check that a tree of which not even the root can be read is refused."""
    monkeypatch.setattr(contexts, "MAX_STEPS", 0)
    with running(forged("set", 8000, 0, tmp_path), tmp_path) as target, heap_of(str(target.pid)) as heap:
        with pytest.raises(Unsupported, match="more than 0 blocks"):
            _none = heap.content(PostgresqlContent).contexts


def test_sizes_of_forged_contexts(tmp_path: Path, rng: random.Random) -> None:
    """Check that contexts with impossible sizes are refused in one line, and that the page has no contexts."""
    wanted = list(forgeries(rng))
    asked = rng.choice(wanted)
    for kind, size, free in wanted:
        with running(forged(kind, size, free, tmp_path), tmp_path) as target:
            with heap_of(str(target.pid)) as heap, pytest.raises(Unsupported, match="memory context"):
                _none = heap.content(PostgresqlContent).contexts
            if (kind, size, free) == asked:
                done = gdbheap(str(target.pid))
                assert done.returncode == 0 and "EiB" not in done.stdout, (kind, size, free, done.stderr)
