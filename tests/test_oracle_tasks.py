"""``heap tasks`` against asyncio.all_tasks() and the coroutines themselves, for every CPython found here."""

from __future__ import annotations

import collections
import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.library import heap_of
from support.programs import (
    ALL_RELEASES,
    FORMS,
    RELEASE,
    SOURCES,
    ask,
    entered,
    gdbheap,
    interpreter_of_release,
    interpreters,
    plain_environment,
    running,
    since,
)

from gdbheap.answers.at import find_block
from gdbheap.answers.tasks import MAX_CHAIN, _Finder
from gdbheap.contents.python.running.coroutines import Suspendable

pytestmark = pytest.mark.cases(3)

FIRST = "3.6"
LIVE = ("pending", "running")
# tid, task id, task name, coroutine stack; the rest is about its awaiter.
PS_LINE = r"^\d+ +(0x[0-9a-f]+) +(\S+(?: \S+)*)  +(\S+(?: \S+)*)(?:  |$)"
Chain = list[tuple[str, int]]


def started(release: str, rng: random.Random, folder: Path, groups: int = 25, most: int = 20) -> list[str]:
    """Return the command that runs the program; its truth is written to the folder."""
    python = interpreter_of_release(release).executable
    arguments = (rng.getrandbits(32), groups, most, folder / "truth")
    return [python, "-s", str(SOURCES / "tasks.py"), *map(str, arguments)]


def truth_in(folder: Path) -> dict[str, Any]:
    """Return the output of the program."""
    found: dict[str, Any] = json.loads((folder / "truth").read_text())
    return found


def chain_of(row: dict[str, Any]) -> Chain:
    """Return (function, line) of each awaiting coroutine in a row."""
    return [(step["function"], step["line"]) for step in row["waits"]]


def key(row: dict[str, Any]) -> str:
    """Return the part of a row that is equal for tasks that wait alike."""
    return json.dumps([row[name] for name in ("kind", "type", "state", "waits", "waits_for")])


def check_tasks(rows: list[dict[str, Any]], truth: dict[str, Any]) -> None:
    """Check that every task of all_tasks() is listed with its name, its class and its chain, and that no other is
    live."""
    found = {row["address"]: row for row in rows if row["kind"] == "task" and row["state"] in LIVE}
    assert found.keys() == {task["address"] for task in truth["tasks"]}
    for task in truth["tasks"]:
        row = found[task["address"]]
        assert row["name"] == task["name"]
        # The type of C had another name before a module's state made it (3.12).
        assert row["type"].rsplit(".", 1)[-1] == task["type"].rsplit(".", 1)[-1]
        assert row["waits"][0]["function"] == task["coroutine"]
        assert (row["state"] == "running") == task["running"]
        if task["chain"] is not None:
            assert chain_of(row) == [tuple(step) for step in task["chain"]]


@pytest.mark.parametrize("release", since(FIRST))
def test_tasks_and_generators(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check tasks by name and line, with their chains; generators and coroutines that no task runs; both tables
    agree."""
    with running(started(release, rng, tmp_path), tmp_path) as target:
        listed, table = ask("tasks", str(target.pid), "--list"), ask("tasks", str(target.pid), "--top=0")
    truth, rows = truth_in(tmp_path), listed["rows"]
    check_tasks(rows, truth)
    states = collections.Counter(row["state"] for row in rows if row["kind"] == "task")
    assert (states["cancelled"], states["finished"] >= truth["finished"]) == (truth["cancelled"], True)
    others = {row["address"]: row for row in rows if row["kind"] != "task"}
    assert all(others[address]["state"] == "created" for address in truth["not_begun"])
    assert all(others[address]["state"] == "ended" for address in truth["exhausted"])
    for address, chain in truth["generators"].items():
        assert chain_of(others[int(address)]) == [tuple(step) for step in chain]
    groups: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    for row in rows:
        groups[key(row)] = [groups[key(row)][0] + 1, groups[key(row)][1] + row["bytes"]]
    assert {key(row): [row["count"], row["bytes"]] for row in table["rows"]} == groups
    assert table["kinds"] == listed["kinds"] == {k: sum(row["kind"] == k for row in rows) for k in table["kinds"]}
    assert (table["total"]["bytes"], table["unreadable"]) == (sum(row["bytes"] for row in rows), 0)


def test_equals_asyncio_ps(rng: random.Random, tmp_path: Path) -> None:
    """Check that 3.14's own tool lists the same tasks of C's class, with the same names and stacks of coroutines."""
    with running(started("3.14", rng, tmp_path), tmp_path) as target:
        python = interpreter_of_release("3.14").executable
        command = entered([python, "-m", "asyncio", "ps", str(target.pid)])
        done = subprocess.run(command, capture_output=True, text=True, env=plain_environment())
        rows = ask("tasks", str(target.pid), "--list", "--kind=task")["rows"]
    if done.returncode or "coroutine stack" not in done.stdout:
        pytest.skip(f"python -m asyncio ps may not read the process: {(done.stderr or done.stdout)[-200:]}")
    told = {int(match[1], 16): (match[2], match[3]) for match in re.finditer(PS_LINE, done.stdout, re.M)}
    assert told
    own = {row["address"]: row for row in rows if row["state"] in LIVE and row["type"] != "asyncio.tasks.Task"}
    assert {address: row["name"] for address, row in own.items()} == {a: name for a, (name, _stack) in told.items()}
    stacks = {a: " -> ".join(s["function"] for s in row["waits"][::-1]) for a, row in own.items()}
    pending = {a: stack for a, (_name, stack) in told.items() if own[a]["state"] == "pending"}
    # The tool follows only coroutines, not the generator that an object's __await__() returns.
    assert pending == {a: stacks[a].rpartition("Awaitable.__await__ -> ")[2] for a in pending}


@pytest.mark.parametrize("form", FORMS[1:])
def test_in_a_core(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a core gives the same, and that the retained bytes of a row are at least its own bytes."""
    with running(started(RELEASE, rng, tmp_path, 20, 10), tmp_path) as target:
        core = target.as_form(form)
        rows = ask("tasks", core, "--list")["rows"]
        texts = [gdbheap("tasks", core, "--list", "--top=all", *options).stdout for options in ([], ["--no-text"])]
        retained = ask("tasks", core, "--retained", "--kind=task")["rows"]
    check_tasks(rows, truth_in(tmp_path))
    assert [("named " in text, "Task-1" in text) for text in texts] == [(True, True), (False, False)]
    assert retained and {row["kind"] for row in retained} == {"task"}
    assert all(row["retained"] > 0 for row in retained)


def test_many_tasks_are_one_row(tmp_path: Path) -> None:
    """Check that 50,000 tasks that wait alike are one row, with their number."""
    program = (
        "import asyncio, os\n"
        "async def stands(gate):\n    await gate.wait()\n"
        "async def main():\n"
        "    gate = asyncio.Event()\n    kept = [asyncio.ensure_future(stands(gate)) for _ in range(50_000)]\n"
        "    await asyncio.sleep(0.01)\n    os.read(0, 1)\n"
        "asyncio.new_event_loop().run_until_complete(main())\n"
    )
    with running([interpreter_of_release(RELEASE).executable, "-c", program], tmp_path) as target:
        answer = ask("tasks", str(target.pid), "--kind=task", "--max-stop=0")
    first = answer["rows"][0]
    assert (first["count"], first["coroutine"], first["line"]) == (50_000, "stands", 3)
    assert (answer["kinds"]["task"], len(answer["rows"])) == (50_001, 2)


HOLDING = """
import asyncio, json, os, random, sys
async def stands(gate, size):
    data = bytearray(size)
    await gate.wait()
def whole(task):
    coroutine = task._coro
    parts = [task, coroutine, coroutine.cr_frame.f_locals["data"]]
    return sum(map(sys.getsizeof, parts))
async def main(rng):
    gate = asyncio.Event()
    sizes = [rng.randrange(5_000, 20_000) for _ in range(300)]
    kept = [asyncio.ensure_future(stands(gate, size)) for size in sizes]
    await asyncio.sleep(0.01)
    sys.stderr.write(json.dumps(sum(map(whole, kept))))
    sys.stderr.flush()
    os.read(0, 1)
asyncio.new_event_loop().run_until_complete(main(random.Random(int(sys.argv[1]))))
"""


BARE = """
import asyncio, json, os, sys
async def stands(gate):
    await gate
async def main():
    gate = asyncio.get_running_loop().create_future()
    kept = [asyncio.ensure_future(stands(gate)) for _ in range(20)]
    await asyncio.sleep(0.01)
    sys.stderr.write(json.dumps([[id(task), id(task.get_coro()), id(gate)] for task in kept]))
    sys.stderr.flush()
    os.read(0, 1)
asyncio.run(main())
"""


def test_bytes_of_a_task(tmp_path: Path) -> None:
    """Check that the bytes of a task are the blocks of the task itself, of its coroutine and of its frame, which is in
    the coroutine since 3.11."""
    with running([interpreter_of_release("3.11").executable, "-c", BARE], tmp_path) as target:
        known = json.loads(target.stderr)
        rows = {row["address"]: row for row in ask("tasks", str(target.pid), "--list", "--kind=task")["rows"]}
        with heap_of(str(target.pid)) as heap:
            for task, coroutine, gate in known:
                found = [find_block(heap, address) for address in (task, coroutine)]
                assert rows[task]["awaits"] == gate
                assert rows[task]["bytes"] == sum(block.size for block in found if block is not None), (
                    hex(task),
                    found,
                )


@pytest.mark.parametrize("release", since(FIRST))
def test_retained_by_tasks(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that tasks retain the bytes that the program reports for their coroutines and variables, and never less
    than their own: the running task is held by the call of the event loop, and so is its coroutine."""
    python = interpreter_of_release(release).executable
    with running([python, "-c", HOLDING, str(rng.getrandbits(32))], tmp_path) as target:
        rows = ask("tasks", str(target.pid), "--retained", "--kind=task")["rows"]
        each = ask("tasks", str(target.pid), "--retained", "--list", "--sort=retained", "--kind=task", "--top=all")[
            "rows"
        ]
        text = gdbheap("tasks", str(target.pid), "--retained", "--list").stdout
        known = json.loads(target.stderr)
    by_name = {row["coroutine"]: row for row in rows}
    assert by_name.keys() == {"stands", "main"}
    assert all(row["retained"] >= row["bytes"] for row in rows)
    # Blocks have headers and classes of sizes; besides frames, futures and callbacks are not in the program's count.
    assert known <= by_name["stands"]["retained"] <= 1.35 * known
    sizes = [one["retained"] for one in each]
    assert sizes == sorted(sizes, reverse=True) and all(one["retained"] >= one["bytes"] for one in each)
    # Objects that several tasks hold together are freed only with all of them.
    assert (
        sum(sizes) <= sum(row["retained"] for row in rows)
        and "retained" in text.partition("\n\n")[2].partition("\n")[0]
    )


SHARED = """
import os, sys
def leaf():
    while True: yield
def link(inner): yield from inner
depth, count = map(int, sys.argv[1:])
chain = [leaf()]
for _ in range(depth):
    next(chain[-1])
    chain.append(link(chain[-1]))
outer = [link(chain[-1]) for _ in range(count)]
for one in outer: next(one)
sys.stderr.write(str(sum(map(sys.getsizeof, chain + outer))))
sys.stderr.flush()
os.read(0, 1)
"""


def test_a_chain_that_many_wait_for(rng: random.Random, tmp_path: Path) -> None:
    """Check generators that all wait for one inner chain: the chain's bytes count once, and the row lists the
    chain's first steps and the number of the other steps."""
    depth, count = rng.randrange(200, 300), rng.randrange(50, 90)
    command = [interpreter_of_release(RELEASE).executable, "-c", SHARED, str(depth), str(count)]
    with running(command, tmp_path) as target:
        answer, listed = ask("tasks", str(target.pid)), ask("tasks", str(target.pid), "--list", "--top=all")
        known = int(target.stderr)
    (row,) = answer["rows"]
    # Blocks have headers and classes of sizes.
    assert row["count"] == count and known <= row["bytes"] <= 1.35 * known
    assert sum(one["bytes"] for one in listed["rows"]) == row["bytes"]
    # The outer one, the chain and its leaf.
    assert row["waits"][-1]["function"] == f"{depth + 2 - MAX_CHAIN:,} more" and len(row["waits"]) == MAX_CHAIN + 1


def test_a_chain_is_followed_once(rng: random.Random) -> None:
    """Check that following many chains takes at most one step for each coroutine, also if chains lead back into
    themselves.
    """
    count = rng.randrange(300, 500)
    finder: Any = object.__new__(_Finder)
    finder._waiting = {at: Suspendable(at, "link", "suspended", None, 0, 0, False) for at in range(1, count)}
    finder._after = {at: rng.randrange(1, 2 * count) for at in range(1, count)}
    finder._ends = {}
    assert sum(len(finder._follow(rng.randrange(1, count))) for _ in range(5 * count)) <= count
    assert len(finder._ends) < count


GREENLETS = """
import greenlet, os
def inner():
    greenlet.getcurrent().parent.switch()  # line 4
def outer():
    inner()
kept = [greenlet.greenlet(outer) for _ in range(7)]
for one in kept: one.switch()
os.read(0, 1)
"""


def test_greenlets(tmp_path: Path) -> None:
    """Check that greenlets are grouped by the line at which they wait, if this machine has an interpreter with
    greenlet."""
    python = interpreter_with("greenlet")
    with running([python, "-c", GREENLETS], tmp_path) as target:
        rows = ask("tasks", str(target.pid), "--kind=greenlet")["rows"]
    suspended = [row for row in rows if row["state"] == "suspended"]
    assert [(row["count"], row["coroutine"], row["line"]) for row in suspended] == [(7, "inner", 4)]


def interpreter_with(module: str) -> str:
    """Return an interpreter that can import a module; skip if there is none."""
    for release in reversed(ALL_RELEASES):
        for found in interpreters(release):
            command = [found.executable, "-c", f"import {module}"]
            if subprocess.run(command, capture_output=True, env=plain_environment()).returncode == 0:
                return found.executable
    pytest.skip(f"no interpreter here has {module}")


def test_python_2_has_none(tmp_path: Path) -> None:
    """Check that an interpreter without asyncio gets one line."""
    python = interpreter_of_release("2.7").executable
    with running([python, "-c", "import os; os.read(0, 1)"], tmp_path) as target:
        done = gdbheap("tasks", str(target.pid), check=False)
    assert done.returncode == 5 and "has no asyncio" in done.stderr and done.stderr.count("\n") == 1
