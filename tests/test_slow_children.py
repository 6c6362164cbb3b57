"""Processes that a followed program makes: a tracer waits for none of them, and leaves shared memory alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.attackers import needs_root
from support.busy import wait_for
from support.following import becomes_whole, code, following, patched
from support.programs import PATIENCE, c_program, tracer

# The kernel's id for the state of a process that a tracer has stopped.
STOPPED = "t"
ROUNDS = 50


@contextmanager
def slow_child(how: str) -> Iterator[subprocess.Popen[str]]:
    """Yield the program, before it makes the other process; skip the test where it may not."""
    command = c_program("slow_child", how)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() == "refused\n":
            pytest.skip("the kernel refuses userfaultfd(2)")
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def say(process: subprocess.Popen[str]) -> None:
    """Let the program go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@needs_root
def test_a_child_that_stops_late() -> None:
    """Check that the program runs on at once, and that the command ends in time, with the calls that it saw."""
    with slow_child("late") as process:
        with following(process.pid, "growth", str(process.pid), "--duration=3s") as follower:
            say(process)
            assert process.stdout is not None and process.stdout.readline() == "made\n"
            out, error = follower.process.communicate(timeout=PATIENCE)
        assert follower.process.returncode == 1, error
        calls = {row["id"]: row["calls"] for row in json.loads(out)["operations"]}
        assert calls["mmap"] == calls["munmap"] == ROUNDS
        wait_for(lambda: tracer(process.pid) == 0 and state_of(process.pid) != STOPPED, "a tracer holds it")


def state_of(pid: int) -> str:
    """Return the letter of the process's state."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_a_child_that_shares_the_memory() -> None:
    """Check that calls are still seen once a process shares the memory, and that the code is restored only after its
    end: the other process may run it."""
    with slow_child("shares") as process:
        before = code(process.pid)
        with following(process.pid, "growth", str(process.pid), "--duration=2s") as follower:
            say(process)
            assert process.stdout is not None and process.stdout.readline() == "made\n"
            out, error = follower.process.communicate(timeout=PATIENCE)
        answer = json.loads(out)
        calls = {row["id"]: row["calls"] for row in answer["operations"]}
        assert calls["mmap"] == calls["munmap"] == ROUNDS
        assert follower.process.returncode == 1 and "still patched" in " ".join(answer["warnings"]), (answer, error)
        assert patched(process.pid, before) > 0
        wait_for(lambda: tracer(process.pid) == 0, "a tracer holds it")
        say(process)
        assert becomes_whole(process.pid, before, PATIENCE)
