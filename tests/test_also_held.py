"""Holders that share bytes with others: the bytes that removing one frees, the other holders, and piled-up tasks."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

from support.programs import ask, c_program, gdbheap, running

MIB = 1 << 20
REST = "print(flush=True); sys.stdin.readline()"
# The items are in a list, in a dict and in another list. An instance also refers to the first list.
ROWS = (
    "import sys\n"
    "class Service:\n"
    "    def __init__(self, rows): self.rows = rows\n"
    "rows = [[bytes({size})] for n in range({count})]\n"
    "by_number, recent, service = dict(enumerate(rows)), list(rows), Service(rows)\n"
    "print(sys.getsizeof(rows), file=sys.stderr, flush=True); sys.stdin.readline()\n"
)
# Tasks that wait for two others. A set has them, and the semaphore's queue leads to them.
TASKS = (
    "import asyncio, sys\n"
    "async def handle(gate, n):\n"
    "    payload = bytearray({size})\n"
    "    async with gate: await asyncio.sleep(100_000)\n"
    "    return payload\n"
    "async def main():\n"
    "    gate, running = asyncio.Semaphore(2), set()\n"
    "    for n in range({count}):\n"
    "        task = asyncio.create_task(handle(gate, n)); running.add(task)\n"
    "        task.add_done_callback(running.discard)\n"
    "    await asyncio.sleep(0)\n"
    "    sys.stdin.readline()\n"
    "asyncio.run(main())\n"
)
# The cache has two thirds of the bytes, and each attribute of the two instances above it a sixth.
NESTED = (
    "import sys\n"
    "class Part: pass\n"
    "app, store = Part(), Part()\n"
    "for part in (app, store):\n"
    "    for n in range(300): setattr(part, f'field{{n}}', bytes({small}))\n"
    "app.store, store.cache = store, [bytes({large}) for _ in range(6000)]\n"
    "del store, part\n"
    "sys.stdin.readline()\n"
)
NAMES = (
    "import sys; sys.path.insert(0, {folder!r})\n"
    "import store\n"
    "from store import CACHE as kept\n"
    "class Shop: cache = kept\n"
    "again, other = kept, store.other\n"
    f"{REST}"
)
WRITTEN = (
    "import ctypes, struct, sys\n"
    "kept = {{'data': bytearray(b'x') * {size}}}\n"
    "word = struct.pack('<Q', ctypes.addressof(ctypes.c_char.from_buffer(kept['data'])))\n"
    "libc = ctypes.CDLL(None); libc.fopen.restype = ctypes.c_void_p\n"
    "file = ctypes.c_void_p(libc.fopen(b'/dev/null', b'w'))\n"
    "libc.fwrite(word * 50, 1, 400, file)\n"
    f"{REST}"
)
# A thread's own data point to the structure of SQLite below the Connection.
IN_THREAD = (
    "import ctypes, sqlite3, sys\n"
    "libc, key = ctypes.CDLL(None), ctypes.c_uint()\n"
    "kept = sqlite3.connect(':memory:')\n"
    "kept.execute('create table t (x)')\n"
    "kept.executemany('insert into t values (?)', ((bytes(2000),) for _ in range({count})))\n"
    "database = ctypes.c_void_p.from_address(id(kept) + object.__basicsize__).value\n"
    "assert libc.pthread_key_create(ctypes.byref(key), None) == 0\n"
    "assert libc.pthread_setspecific(key, ctypes.c_void_p(database)) == 0\n"
    f"{REST}"
)
# The address of the structure of SQLite fills the buffer of a file, which is stale memory otherwise.
IN_TEXT = (
    "import ctypes, sqlite3, struct, sys\n"
    "libc = ctypes.CDLL(None); libc.fopen.restype = ctypes.c_void_p\n"
    "kept = sqlite3.connect(':memory:')\n"
    "kept.execute('create table t (x)')\n"
    "kept.executemany('insert into t values (?)', ((bytes(2000),) for _ in range({count})))\n"
    "word = struct.pack('<Q', ctypes.c_void_p.from_address(id(kept) + object.__basicsize__).value)\n"
    "libc.fwrite(word * {words}, 1, 8 * {words}, ctypes.c_void_p(libc.fopen(b'/dev/null', b'w')))\n"
    f"{REST}"
)
GENERATORS = (
    "import sys\n"
    "def lines(n):\n"
    "    page = [(n, i) for i in range({size})]\n"
    "    for line in page: yield line\n"
    "class Cursor:\n"
    "    def __init__(self, n): self.lines = lines(n); self.first = next(self.lines)\n"
    "cursors = {{n: Cursor(n) for n in range({count})}}\n"
    "sys.stdin.readline()\n"
)


def first_holder(pid: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the first holder of the page and the finding about it."""
    answer = ask("", str(pid))
    (found,) = [row for row in answer["findings"] if row["id"] == "holder"]
    return answer["holders"][0], found


def test_others_hold_the_same(rng: random.Random, tmp_path: Path) -> None:
    """Check that removing a list whose items have other holders frees only the list's own table, and that these holders
    are named.

    The holders are a dict, another list, and the instance that refers to the list itself. Removing all of them frees
    the items.
    """
    count, size = rng.randrange(5000, 8000), rng.randrange(2000, 4000)
    with running([sys.executable, "-c", ROWS.format(count=count, size=size)], tmp_path) as target:
        (holder, found), page = first_holder(target.pid), gdbheap(str(target.pid)).stdout
        table = int((target.directory / "stderr").read_text())
    assert holder["bytes"] >= count * size
    assert {holder["path"], *holder["also"]} >= {"rows", "by_number", "recent"}
    assert holder["path"] != "rows" or "service.rows" in holder["also"]
    # A list has room for an eighth more, a dict has its table and its keys; each is far below one item in ten.
    assert holder["retained"] <= max(2 * table, 200 * count) and 10 * holder["retained"] < holder["bytes"]
    assert holder["together"] >= count * size
    assert "alone frees" in found["text"] and "from all its holders" in found["advice"]
    assert "also held by" in page and "set a limit" not in found["advice"]


def test_who_holds_alone(rng: random.Random, tmp_path: Path) -> None:
    """Check that no other holder is named if only one list leads to its items."""
    count = rng.randrange(3000, 5000)
    code = f"import sys; kept = [bytes(4000) for _ in range({count})]; {REST}"
    with running([sys.executable, "-c", code], tmp_path) as target:
        holder, found = first_holder(target.pid)
    assert holder["path"] == "kept" and holder["also"] == holder["names"] == [] and holder["retained"] >= count * 4000
    assert "alone frees" not in found["text"] and "set a limit" in found["advice"]
    # The holder's name already says what keeps it alive.
    assert not any(" why " in line for line in found["commands"])


def test_other_names_of_a_holder(rng: random.Random, tmp_path: Path) -> None:
    """Check the other names of a list that is not shared: one in its module, one in another, and a class's attribute.

    A variable that holds another list is no other name.
    """
    count = rng.randrange(3000, 5000)
    (tmp_path / "store.py").write_text(f"CACHE = [bytes(4000) for _ in range({count})]\nother = []\n")
    code = NAMES.format(folder=str(tmp_path))
    with running([sys.executable, "-c", code], tmp_path) as target:
        (holder, found), page = first_holder(target.pid), gdbheap(str(target.pid)).stdout
    assert {holder["path"], *holder["names"]} == {"kept", "again", "store.CACHE", "Shop.cache"}
    assert holder["is_most"] and holder["also"] == [] and holder["retained"] >= count * 4000
    assert "also named " in found["text"] and "also named " in page


def test_pointers_in_thread_data(rng: random.Random, tmp_path: Path) -> None:
    """Check that the freed bytes are stated for both cases, as pointers in thread data may be stale."""
    count = rng.randrange(8000, 12_000)
    with running([sys.executable, "-c", IN_THREAD.format(count=count)], tmp_path) as target:
        holder, found = first_holder(target.pid)
    assert holder["path"] == "kept" and holder["also"] == ["data of threads"] and not holder["is_most"]
    assert 10 * holder["retained"] < holder["bytes"] and holder["at_most"] >= count * 2000
    # A few small objects, which a shorter chain reaches, are in another row.
    assert holder["at_most"] <= 1.01 * holder["bytes"]
    assert "perhaps also held by data of threads, by pointers that may be stale" in found["text"]
    assert re.search(r"alone frees between \S+ \S+ and \S+ \S+", found["text"]), found["text"]


def test_pointers_in_blocks_of_c_code(rng: random.Random, tmp_path: Path) -> None:
    """Check that words in a block of C code, which no reference count confirms, do not reduce what removing a holder
    may free. The page, 'heap why' and 'heap retained' give the same two figures.
    """
    count, words = rng.randrange(8000, 12_000), rng.randrange(505, 512)
    with running([sys.executable, "-c", IN_TEXT.format(count=count, words=words)], tmp_path) as target:
        holder, found = first_holder(target.pid)
        why, freed = (ask(command, str(target.pid), hex(holder["address"])) for command in ("why", "retained"))
        text = gdbheap("why", str(target.pid), hex(holder["address"])).stdout
    assert holder["path"] == "kept" and not holder["is_most"] and holder["also"], holder
    assert 10 * holder["retained"] < holder["bytes"]
    assert count * 2000 <= holder["at_most"] <= 1.01 * holder["bytes"]
    assert re.search(r"perhaps also held by .*alone frees between \S+ \S+ and \S+ \S+", found["text"]), found["text"]
    assert holder["at_most"] == why["at_most"] == freed["at_most"] and " retains between " in text


def test_part_of_a_row_is_not_shared(rng: random.Random, tmp_path: Path) -> None:
    """Check that a row named after the largest part of its memory does not claim other holders for the rest."""
    small, large = rng.randrange(18_000, 20_000), rng.randrange(4_300, 4_600)
    with running([sys.executable, "-c", NESTED.format(small=small, large=large)], tmp_path) as target:
        holder, found = first_holder(target.pid)
    assert holder["path"] == "app.store.cache" and 100 * holder["retained"] < 80 * holder["bytes"]
    assert holder["is_most"] and "alone frees" not in found["text"] and holder["also"] == []


def test_globals_that_share_a_list(rng: random.Random, tmp_path: Path) -> None:
    """Check that removing a table of pointers into a list frees nothing: the list's head leads to all nodes."""
    count = rng.randrange(80_000, 120_000)
    with running(c_program("linked", count, count // 900, 0), tmp_path) as target:
        holder, found = first_holder(target.pid)
    names = [name.partition(" in ")[0].strip("'") for name in (holder["path"], *holder["also"])]
    assert sorted(names[:2]) == ["head", "places"] and 10 * holder["retained"] < holder["bytes"]
    assert holder["together"] >= count * 80 and "alone frees" in found["text"]


def test_tasks_pile_up(rng: random.Random, tmp_path: Path) -> None:
    """Check that the row of a set counts the tasks that lead to most of its memory, and names the semaphore's queue.

    The suggested command shows where the tasks wait.
    """
    count, size = rng.randrange(400, 600), 40_000
    with running([sys.executable, "-c", TASKS.format(count=count, size=size)], tmp_path) as target:
        holder, found = first_holder(target.pid)
        rows = ask("tasks", str(target.pid))["rows"]
    assert (holder["tasks"], holder["task_kind"]) == (count, "task") and f"{count} tasks" in found["text"]
    assert found["commands"] == [f"gdbheap tasks {target.pid}"]
    assert any("_waiters" in name for name in holder["also"]) or "_waiters" in holder["path"]
    assert max(row["count"] for row in rows) >= count - 2 and "how many tasks run at once" in found["advice"]


def test_generators_that_are_not_finished(rng: random.Random, tmp_path: Path) -> None:
    """Check that the row of a dict counts the generators that lead to it, and that their frames' variable is named."""
    count = rng.randrange(200, 300)
    with running([sys.executable, "-c", GENERATORS.format(count=count, size=800)], tmp_path) as target:
        holder, found = first_holder(target.pid)
    assert holder["path"] == "cursors" and (holder["tasks"], holder["task_kind"]) == (count, "generator")
    assert "local variable page in lines()" in found["text"] and f"{count} generators" in found["text"]
    assert found["commands"] == [f"gdbheap {noun} {target.pid}" for noun in ("tasks", "retained")]
    assert "close()" in found["advice"]


def test_buffers_of_files_hold_nothing(rng: random.Random, tmp_path: Path) -> None:
    """Check that the address of a bytearray's buffer in a file buffer of the C library does not make a second holder.

    The program had written the address to the file.
    """
    with running([sys.executable, "-c", WRITTEN.format(size=rng.randrange(100, 120) * MIB)], tmp_path) as target:
        holder, found = first_holder(target.pid)
    assert holder["path"] == "kept['data']" and holder["is_most"] and holder["also"] == []
    assert holder["retained"] >= 100 * MIB and "also held" not in found["text"]
