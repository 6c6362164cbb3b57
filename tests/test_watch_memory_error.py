"""``gdbheap watch --on-memory-error``: the state at the moment when Python has no memory, on each interpreter."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.following import changed_code, code, patched
from support.programs import GDBHEAP, PATIENCE, RELEASES, SOURCES, Running, c_program, gdbheap, release_program, running

from gdbheap.watching.memory_errors import MemoryErrors

MIB = 1 << 20


def start(target: Running, folder: Path, *options: str) -> subprocess.Popen[str]:
    """Start a watch, and return once the function is patched."""
    before = changed_code(target.pid)
    line = [str(GDBHEAP), "watch", str(target.pid), "--on-memory-error", f"--output={folder}", "--json", *options]
    watch = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + PATIENCE
    while changed_code(target.pid) == before and watch.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    return watch


def events(watch: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Return all events until the watch ended."""
    out, errors = watch.communicate(timeout=PATIENCE)
    assert watch.returncode == 0, errors + out
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.parametrize("release", RELEASES)
def test_memory_error(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the snapshot has the objects that filled the memory and are gone a moment later, and the line that
    asked for more; the program catches its exception, and runs on."""
    piece = rng.randrange(600_000, 900_000)
    # Much more than the interpreter needs, and less than takes long to fill.
    command = release_program(release, "runs_out", 700 * MIB, piece)
    with running(command, tmp_path) as target:
        watch = start(target, tmp_path)
        target.go_on()
        told = events(watch)
        target.go_on()
        counts = [int(line.split()[1]) for line in target.stderr.splitlines() if line.startswith("out")]
        assert target.process.poll() is None and changed_code(target.pid) >= 0
    acted = next(event for event in told if event["event"] == "acted")
    assert acted["cause"]["kind"] == "memory-error" and not acted["errors"], acted
    with zipfile.ZipFile(acted["files"]["snapshot"]) as archive:
        snapshot = json.loads(archive.read("snapshot.json"))
    (pieces,) = [row for row in snapshot["objects"]["rows"] if row["type"] == "bytearray"]
    # The last one is the one that asked for more.
    assert pieces["count"] == counts[0] + 1
    assert pieces["buffers"] >= counts[0] * piece
    (innermost,) = [frame for frame in acted["stack"] if frame["kind"] == "python"][-1:]
    lines = (SOURCES / "runs_out.py").read_text().splitlines()
    assert innermost["name"].endswith("fill") and "bytearray" in lines[innermost["line"] - 1]


def test_watch_is_killed(rng: random.Random, tmp_path: Path) -> None:
    """Check that the exception comes as before, and that the code is restored, if the watch is killed while it
    waits."""
    with running(release_program(RELEASES[-1], "runs_out", 700 * MIB, 800_000), tmp_path) as target:
        before = code(target.pid)
        watch = start(target, tmp_path)
        watch.kill()
        watch.communicate()
        target.go_on()
        assert "out" in target.stderr and patched(target.pid, before) == 0


def test_no_python(tmp_path: Path) -> None:
    """Check that a program without Python gives one line, and status 1 at the end, whenever Ctrl-C comes."""
    with running(c_program("idle"), tmp_path) as target:
        for _ in range(8):
            watch = subprocess.Popen(
                [str(GDBHEAP), "watch", str(target.pid), "--on-memory-error", f"--output={tmp_path}"],
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert watch.stderr is not None
            told = "".join(watch.stderr.readline() for _ in range(3))
            watch.send_signal(signal.SIGINT)
            watch.communicate(timeout=PATIENCE)
            assert "cannot notice its MemoryErrors" in told and watch.returncode == 1
    assert gdbheap("watch", str(os.getpid()), "--on-memory-error", "--core").returncode == 2


def test_names_are_read_later() -> None:
    """Check that the stack of the stopped thread is only captured, and gets its names after the thread runs on."""
    done: list[str] = []
    follower = SimpleNamespace(next=lambda _seconds: done.append("runs on"))
    stacks = SimpleNamespace(
        capture_registers=lambda registers: done.append("captured") or registers,
        name=lambda captured: done.append("named") or captured,
    )
    errors: Any = object.__new__(MemoryErrors)
    errors._hit, errors._stacks, errors._follower = SimpleNamespace(registers=(1, 2)), stacks, follower
    stack = errors.stack()
    errors.go_on()
    assert stack() == [1, 2] and done == ["captured", "runs on", "named"]
    assert errors.stack()() == []
