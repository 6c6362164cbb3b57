"""The first page describes a holder by the memory around it: databases of sqlite3, loggers, labels of metrics."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.installed import python_with
from support.library import heap_of
from support.programs import ask, gdbheap, interpreter_of_release, running

from gdbheap.contents.python.names.paths import ObjectPaths
from gdbheap.contents.python.objects import surroundings
from gdbheap.contents.python.objects.surroundings import MAX_VALUES
from gdbheap.findings.holder.rule import LABEL
from gdbheap.first_page.ledger import ledger
from gdbheap.first_page.main_holders import BUDGET
from gdbheap.first_page.traits import MAX_BEFORE, MAX_PATHS, with_traits
from gdbheap.graph.paths import Path as PathTo
from gdbheap.snapshots.file import ENTRY
from gdbheap.text import quoted

OPENS = """
import os, sqlite3, sys, threading
def opened(name, **others):
    connection = sqlite3.connect(name, check_same_thread=False, **others)
    connection.execute("pragma cache_size=-100000")
    connection.execute("create table t(a integer primary key, b blob)")
    rows = ((os.urandom(900),) for _ in range(ROWS))
    connection.executemany("insert into t(b) values(?)", rows)
    connection.commit()
    connection.execute("select sum(length(b)) from t").fetchall()
    return connection
class Opener(threading.Thread):
    def run(self):
        self.connection = opened(*PLACE)
        if STAYS: done.set(); threading.Event().wait()
done = threading.Event()
opener = Opener(daemon=True)
opener.start()
done.wait() if STAYS else opener.join()
kept = opener.connection
print(flush=True); sys.stdin.readline()
"""
LOGS = """
import logging, logging.handlers, sys
class Own(logging.handlers.MemoryHandler): pass
log = logging.getLogger("NAME")
log.setLevel(logging.DEBUG); log.propagate = False
log.addHandler(KIND(10_000_000))
for number in range(COUNT): log.debug("%s", "x" * 1500 + str(number))
WITHOUT
print(flush=True); sys.stdin.readline()
"""
METRICS = """
import prometheus_client, sys
seen = prometheus_client.Counter("seen", "seen", ["method", "resource", "status"])
for number in range(COUNT): seen.labels("GET", f"/items/{number}/x", str(number % 3)).inc()
print(flush=True); sys.stdin.readline()
"""


@pytest.mark.cases(4)
@pytest.mark.parametrize("release", ["3.6", "3.9", "3.10", "3.11", "3.12", "3.13"])
@pytest.mark.parametrize("place", ["file", "memory", "temporary"])
def test_databases(release: str, place: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the page says whether connections are to a file or to memory, and that it mentions an ended thread
    that opened them only if it has ended."""
    python = interpreter_of_release(release).executable
    name = {"file": str(tmp_path / "stock.db"), "memory": ":memory:", "temporary": ""}[place]
    stays, rows = rng.random() < 0.5, rng.randrange(8000, 12000)
    script = OPENS.replace("ROWS", str(rows)).replace("*PLACE", repr(name)).replace("STAYS", str(stays))
    with running([python, "-c", script], tmp_path) as target:
        answer, page = ask("", str(target.pid)), gdbheap(str(target.pid)).stdout
        hidden = gdbheap(str(target.pid), "--no-text").stdout
    assert str(tmp_path) not in hidden
    row = answer["holders"][0]
    traits = [(one["kind"], one["name"], one["count"], one["example"]) for one in row["traits"]]
    assert traits == [("database", name, 1, place)] + [("opened by ended threads", "", 1, None)] * (not stays)
    memory, temporary = " to a database in memory", " to a temporary database"
    told = {"file": f" to {quoted(name)}", "memory": memory, "temporary": temporary}
    page = " ".join(page.split())
    others = [other for kind, other in told.items() if kind not in (place, "file")] + [".db"] * (place != "file")
    assert told[place] in page and not [other for other in others if other in page]
    assert ("opened by a thread that has ended" in page) is not stays
    assert ("PRAGMA shrink_memory" in page) is (place != "memory")


@pytest.mark.parametrize("uri", ["file:/named?mode=memory", "file:named?mode=memory"])
def test_database_in_memory_by_uri(uri: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a name like a file's is not taken as a file, as none exists."""
    script = OPENS.replace("ROWS", str(rng.randrange(8000, 12000))).replace("STAYS", "False")
    script = script.replace("*PLACE", f"{uri!r}, uri=True")
    with running([interpreter_of_release("3.11").executable, "-c", script], tmp_path) as target:
        page = ask("", str(target.pid))
    kinds = {one["example"] for row in page["holders"] for one in row["traits"] if one["kind"] == "database"}
    assert kinds == {"memory"}


@pytest.mark.parametrize("kind", ["logging.handlers.MemoryHandler", "Own"])
@pytest.mark.parametrize("without", ["", "del log"])
def test_records_that_a_handler_keeps(kind: str, without: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the handler's class and the logger's name are on the page, and that the advice is about the
    handler."""
    name = f"shop.orders{rng.randrange(100)}"
    script = LOGS.replace("NAME", name).replace("KIND", kind).replace("COUNT", str(rng.randrange(10_000, 30_000)))
    with running(
        [interpreter_of_release("3.11").executable, "-c", script.replace("WITHOUT", without)], tmp_path
    ) as one:
        page = " ".join(gdbheap(str(one.pid)).stdout.split())
        hidden = gdbheap(str(one.pid), "--no-text").stdout
    assert name not in hidden and f"in a {kind.rpartition('.')[2]}" in hidden
    assert f" in a {kind.rpartition('.')[2]} of logger {quoted(name)}" in page and ".handlers[0].buffer" in page
    assert "emove the handler" in page and "LoggerAdapter" not in page


def test_labels_without_bound(rng: random.Random, tmp_path: Path) -> None:
    """Check that the page names the label with the most values and one of these, but none with --no-text."""
    count = rng.randrange(15_000, 20_000)
    command = [python_with("prometheus_client"), "-c", METRICS.replace("COUNT", str(count))]
    with running(command, tmp_path) as target:
        page = " ".join(gdbheap(str(target.pid)).stdout.split())
        hidden = " ".join(gdbheap(str(target.pid), "--no-text").stdout.split())
    told = f'label "resource" has {count:,} values, such as '
    assert f"{told}'/items/0/x'" in page and "se labels with few values" in page
    assert (
        f"has {count:,} values, such as <str of 10>" in hidden and "/items/" not in hidden and "resource" not in hidden
    )


POOL = """
import os, sqlite3, sys, threading
class Wrapper: pass
pool = {}
def fill(number):
    one = Wrapper()
    one.link = sqlite3.connect(":memory:", check_same_thread=False)
    one.link.execute("create table t(a integer primary key, b blob)")
    one.link.executemany("insert into t(b) values(?)", ((os.urandom(900),) for _ in range(6000)))
    one.link.commit()
    pool[number] = one
    filled.release()
    threading.Event().wait()
filled = threading.Semaphore(0)
for number in range(COUNT): threading.Thread(target=fill, args=(number,), daemon=True).start()
for number in range(COUNT): filled.acquire()
print(flush=True); sys.stdin.readline()
"""
OF_CLASS = """
import functools, sys
class Api:
    seen = {}
    @functools.lru_cache(maxsize=100)
    def get(self, number): return bytes(60_000)
api = Api()
for number in range(200): api.get(number)
for number in range(20000): Api.seen[number] = str(number) * 50
print(flush=True); sys.stdin.readline()
"""
MAPPED = """
import mmap, sys
kept = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
kept.write(b"x" * SIZE)
print(flush=True); sys.stdin.readline()
"""


def python(script: str, **values: int) -> list[str]:
    """Return the command of a script with its numbers."""
    for name, value in values.items():
        script = script.replace(name, str(value))
    return [interpreter_of_release("3.11").executable, "-c", script]


def test_connections_of_a_pool(rng: random.Random, tmp_path: Path) -> None:
    """Check that memory to which only the library refers counts as the library's, with advice about the data and not
    about callbacks."""
    with running(python(POOL, COUNT=rng.randrange(3, 6)), tmp_path) as target:
        page = " ".join(gdbheap(str(target.pid)).stdout.split())
    assert "pool[…].link" in page and "his is the data of the database itself" in page and "callbacks" not in page


def test_attributes_of_a_class_are_holders_of_their_own(tmp_path: Path) -> None:
    """Check that attributes of a class are separate holders, unlike items of a container."""
    with running(python(OF_CLASS), tmp_path) as target:
        rows = {row["path"]: row["what"] for row in ask("", str(target.pid))["holders"]}
    assert rows["Api.seen"] == "dict" and rows["Api.get"] == "functools._lru_cache_wrapper"


def test_mapped_memory_of_an_object_is_in_use(rng: random.Random, tmp_path: Path) -> None:
    """Check that memory that an object of the program mapped is neither an unknown mapping nor a runtime's."""
    size = rng.randrange(20, 40) << 20
    with running(python(MAPPED, SIZE=size), tmp_path) as target:
        page = ask("", str(target.pid))
    assert page["holders"][0]["path"] == "kept" and page["summary"]["outside"] >= size
    assert "mappings of no known" not in page["verdict"] and "not examined" not in page["verdict"]


@pytest.mark.parametrize("more", ["attach database ? as other", "create temp table s as select * from t"])
def test_memory_of_other_databases(more: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the page does not say which database has the memory if a connection has another database in addition
    to its main one.
    """
    arguments = f", ({str(tmp_path / 'big.db')!r},)" if "?" in more else ""
    script = POOL.replace("one.link.commit()", f"one.link.commit(); one.link.execute({more!r}{arguments})")
    with running(python(script, COUNT=4), tmp_path) as target:
        page = gdbheap(str(target.pid)).stdout
    assert "in memory (" not in page and "a database in memory;" not in page and "database itself" not in page


BEHIND = """
import io, logging, sys
class Own(logging.Handler):
    def __init__(self, app): super().__init__(); self.app = app
class App: pass
app = App(); app.cache = {n: b"x" * 3000 + str(n).encode() for n in range(5000)}
logging.getLogger("audit").addHandler(Own(app))
del app
print(flush=True); sys.stdin.readline()
"""


def test_what_a_handler_only_refers_to(tmp_path: Path) -> None:
    """Check that memory behind another object of the program is not the handler's, and that no advice is about it."""
    with running(python(BEHIND), tmp_path) as target:
        page = " ".join(gdbheap(str(target.pid)).stdout.split())
    assert ".handlers[0].app.cache" in page and "emove the handler" not in page


SECRETS = """
import logging, logging.handlers, sqlite3, sys
class Gauge: __slots__ = ("_labelnames", "_metrics")
Gauge.__module__ = "prometheus_client.metrics"
label = Gauge()
label._labelnames = ("TOKEN of a label", "b")
label._metrics = {(f"v{n}", "x"): bytearray(6000) for n in range(3000)}
log = logging.getLogger("TOKEN of a logger")
log.addHandler(logging.handlers.MemoryHandler(10**9))
for n in range(3000): log.warning(f"x{n}" + "y" * 5000)
con = sqlite3.connect("file:/TOKEN?vfs=memdb", uri=True)
con.execute("create table t(x)")
con.executemany("insert into t values(?)", [("z" * 3000,) for n in range(5000)])
con.commit()
print(flush=True); sys.stdin.readline()
"""


def written(path: Path) -> str:
    """Return the text of a file; a snapshot is unpacked."""
    if path.suffix != ".heap":
        return path.read_text(encoding="utf-8")
    with zipfile.ZipFile(path) as archive:
        return archive.read(ENTRY).decode()


def test_names_that_are_secrets(rng: random.Random, tmp_path: Path) -> None:
    """Check that names of a label, a logger and a database are contents: --no-text and a file without contents hide
    them."""
    token = "".join(rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(8))
    with running(python(SECRETS.replace("TOKEN", token)), tmp_path) as target:
        pid, folder = str(target.pid), tmp_path / "out"
        folder.mkdir()
        for words in ((pid, "--json"), ("owners", pid)):
            assert token not in gdbheap(*words, "--no-text").stdout
        page = " ".join(gdbheap(pid).stdout.split())
        hidden = " ".join(gdbheap(pid, "--no-text").stdout.split())
        assert gdbheap("report", pid, "-o", str(folder / "plain.html")).returncode == 0
        assert gdbheap("snapshot", pid, str(folder / "plain.heap")).returncode == 0
        assert gdbheap("snapshot", pid, str(folder / "shown.heap"), "--with-contents").returncode == 0
        heap = ("--heap", "--count=1", "--no-snapshot", f"--output={folder}")
        assert gdbheap("watch", pid, "--rss=1K", *heap).returncode == 0
        files = [*folder.glob("*.html"), *folder.glob("*.heap"), *folder.glob("*.json")]
        showing = sorted(path.name for path in files if token in written(path))
    assert len(files) == 4 and showing == ["shown.heap"]
    assert all(f'"{token} of a {kind}"' in page for kind in ("label", "logger")) and f'("/{token}")' in page
    assert token not in hidden
    assert "label <str of 19> has 3,000" in hidden and "MemoryHandler of logger <str of 20>" in hidden


CONNECTIONS = """
import sys
class Node: __slots__ = ("next",)
class Connection: __slots__ = ("pay",)
Connection.__module__ = "sqlite3"
first = end = Node()
for n in range(50_000):
    node = Node(); node.next = first; first = node
del node
head = first
end.next = []
for n in range(1000):
    one = Connection(); one.pay = bytearray(20000); end.next.append(one)
del one, end, first
print(flush=True); sys.stdin.readline()
"""
LABELS = """
import sys
class Gauge: __slots__ = ("_labelnames", "_metrics")
Gauge.__module__ = "prometheus_client.metrics"
keys = [(*["x" * 50] * 7, str(n)) for n in range(30_000)]
gauges = []
for n in range(8):
    gauge = Gauge()
    gauge._labelnames = tuple(f"label{n}" for n in range(8))
    gauge._metrics = {key: bytearray(5000) if n % 20 == 0 else None for n, key in enumerate(keys)}
    globals()[f"gauge{n}"] = gauge
print(flush=True); sys.stdin.readline()
"""
NO_TEXTS = """
import sys
class Gauge: __slots__ = ("_labelnames", "_metrics")
Gauge.__module__ = "prometheus_client.metrics"
gauge = Gauge()
gauge._labelnames = ("a", "b")
gauge._metrics = {(n, "x"): bytearray(2000) for n in range(5000)}
print(flush=True); sys.stdin.readline()
"""


def test_connections_behind_a_long_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that only the end of the path to each connection is read, and that few paths are asked for."""
    with running(python(CONNECTIONS), tmp_path) as target, heap_of(str(target.pid)) as heap:
        rows = ledger(heap, budget=BUDGET).holders
        looked: list[int] = []
        path = ObjectPaths.path

        def counted(self: ObjectPaths, numbers: Sequence[int]) -> PathTo:
            looked.append(len(numbers))
            return path(self, numbers)

        monkeypatch.setattr(ObjectPaths, "path", counted)
        assert len(with_traits(heap, rows)) == len(rows)
    assert len(looked) <= MAX_PATHS and max(looked, default=0) < MAX_BEFORE


def test_labels_of_many_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that all metrics together have one budget."""
    with running(python(LABELS), tmp_path) as target, heap_of(str(target.pid)) as heap:
        rows = ledger(heap, budget=BUDGET).holders
        read: list[int] = []
        name = surroundings.read_name

        def counted(*arguments: Any) -> str | None:
            read.append(arguments[2])
            return name(*arguments)

        monkeypatch.setattr(surroundings, "read_name", counted)
        traits = [trait for row in with_traits(heap, rows) for trait in row.traits if trait.kind == LABEL]
    assert traits and any(trait.at_least for trait in traits)
    assert len(read) <= MAX_VALUES + 1000


def test_labels_that_are_no_texts(tmp_path: Path) -> None:
    """Check that labels that are no texts are not mentioned."""
    with running(python(NO_TEXTS), tmp_path) as target:
        rows = ask("", str(target.pid))["holders"]
    assert rows and not any(row["traits"] for row in rows)
