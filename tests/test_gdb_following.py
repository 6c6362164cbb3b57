"""``heap catch`` and ``heap growth`` inside gdb: the process stops at the call, and survives the death of gdb."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.following import code, patched
from support.gdb_side import GDB, batch, documents, executed, home, needs_gdb, runs
from support.programs import PATIENCE, Running, c_program, running

pytestmark = needs_gdb
SIGNALS_BLOCKED = "SigBlk"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a user who has installed gdbheap for gdb."""
    return home(tmp_path_factory.mktemp("home"))


def start_gdb(target: Running, commands: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """Start gdb on a process, in a batch."""
    line = [GDB, "-p", str(target.pid), "-batch", "-x", "gdbheap", *executed(commands)]
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen(line, env=environment, cwd="/", stdin=null, stdout=pipe, stderr=pipe, text=True)


def wait_for_patch(target: Running, before: dict[int, bytes], gdb: subprocess.Popen[str]) -> None:
    """Return once the code of the process has changed and the process runs, traced or not."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and gdb.poll() is None:
        state = Path(f"/proc/{target.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state in "SR" and patched(target.pid, before):
            return
        time.sleep(0.01)
    raise AssertionError(gdb.communicate(timeout=PATIENCE))


def write_line(target: Running) -> None:
    """Send a line, so that the program continues. Do not wait for the program."""
    assert target.process.stdin is not None
    target.process.stdin.write(b"x")
    target.process.stdin.flush()


def blocked(target: Running) -> str:
    """Return the signals that the first thread blocks."""
    lines = Path(f"/proc/{target.pid}/status").read_text().splitlines()
    return next(line for line in lines if line.startswith(SIGNALS_BLOCKED))


@pytest.mark.parametrize("function", ["malloc", "realloc", "free"])
def test_stands_at_the_call(function: str, rng: random.Random, environment: dict[str, str], tmp_path: Path) -> None:
    """Check that gdb shows the function's first instruction after the answer, and that its arguments are those of
    the call."""
    size = 8 * rng.randrange(5_000, 100_000)
    with running(c_program("asks", size), tmp_path) as target:
        before, mask = code(target.pid), blocked(target)
        commands = [
            f"heap catch {function} --size={size} --json",
            "output/x $rdi",
            "echo \\n",
            "output/x $rsi",
            "echo \\n",
            "info symbol $rip",
        ]
        gdb = start_gdb(target, commands, environment)
        wait_for_patch(target, before, gdb)
        write_line(target)
        out, errors = gdb.communicate(timeout=PATIENCE)
        assert gdb.returncode == 0, errors
        target.rest()
        assert runs(target.pid) and patched(target.pid, before) == 0 and blocked(target) == mask
        target.go_on()
    answer = documents(subprocess.CompletedProcess([], 0, out, errors))[0]
    (call,) = answer["rows"]
    assert [frame["name"] for frame in call["frames"]][-2:] == ["wanted", function]
    assert "received signal" not in out
    first, second, symbol = [line for line in out.splitlines() if line.startswith(("0x", function, "__"))][-3:]
    assert function in symbol
    assert int(first, 16) == (size if function == "malloc" else call["address"])
    if function == "realloc":
        assert int(second, 16) == size


def test_growth(rng: random.Random, environment: dict[str, str], tmp_path: Path) -> None:
    """Check that the figures are the program's own for the requested time; then gdb detaches and the process runs
    on."""
    with running(c_program("grows", rng.randrange(1, 1 << 20), 5), tmp_path) as target:
        before = code(target.pid)
        gdb = start_gdb(target, ["heap growth --duration=4 --top=all --json"], environment)
        wait_for_patch(target, before, gdb)
        target.go_on()
        out, errors = gdb.communicate(timeout=PATIENCE)
        assert gdb.returncode == 0, errors
        truth = json.loads(target.stderr.splitlines()[-1])
        assert runs(target.pid) and patched(target.pid, before) == 0
        target.go_on()
    answer: dict[str, Any] = documents(subprocess.CompletedProcess([], 0, out, errors))[0]
    rows = {row["id"]: [row["calls"], row["bytes"]] for row in answer["operations"]}
    assert rows["mremap"] == truth["mremap"] and rows["munmap"] == truth["munmap"]
    assert [answer["brk"]["calls"], answer["brk"]["bytes"]] == truth["brk"]
    assert answer["unseen"] == {"came": 0, "went": 0, "by_stacks": 0}


def test_survives_gdb_killed(rng: random.Random, environment: dict[str, str], tmp_path: Path) -> None:
    """Check that the process survives if gdb is killed while the code is changed, and that the next command removes
    the change."""
    with running(c_program("asks", 80_000), tmp_path) as target:
        before = code(target.pid)
        gdb = start_gdb(target, ["heap catch malloc --min=10K --count=0"], environment)
        wait_for_patch(target, before, gdb)
        write_line(target)
        threading.Event().wait(0.3 * rng.random())
        os.kill(gdb.pid, signal.SIGKILL)
        gdb.communicate(timeout=PATIENCE)
        target.rest()
        target.go_on()
        assert runs(target.pid)
        again = start_gdb(target, ["heap catch malloc --size=12345678 --duration=1"], environment)
        out, errors = again.communicate(timeout=PATIENCE)
        assert again.returncode == 0 and "No matching call was made" in out, errors
        target.rest()
        assert patched(target.pid, before) == 0
        target.go_on()


def test_not_of_a_core(environment: dict[str, str], tmp_path: Path) -> None:
    """Check that a core is refused with one line and status 2."""
    with running(c_program("asks", 80_000), tmp_path) as target:
        done = batch(["-c", str(target.gcore())], ["heap growth --duration=1"], environment)
    assert done.returncode == 2 and "live process" in done.stderr, done.stderr
