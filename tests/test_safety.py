"""Whatever happens to gdbheap, the target process runs on; a process that was stopped before stays stopped."""

from __future__ import annotations

import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import kernel, programs
from support.nouns import GRAPHS, PLAIN

pytestmark = pytest.mark.cases(1)

NOUNS = (*PLAIN, *GRAPHS)
LIBRARY = """
import sys
from gdbheap.targets.process import stopped
with stopped(int(sys.argv[1])) as process:
    print("in", flush=True)
    sys.stdin.readline()
"""
# argv: file, threads. Each thread counts in its own word of the file, which is mapped shared.
COUNTERS = """
import mmap, struct, sys, threading, time
threads = int(sys.argv[2])
file = open(sys.argv[1], "r+b")
file.truncate(4096)
words = mmap.mmap(file.fileno(), 4096)
ballast = [str(number) for number in range(400_000)]
def count(index):
    number = 0
    while True:
        number += 1
        words[index * 8:index * 8 + 8] = struct.pack("<Q", number)
        time.sleep(0.0005)
for index in range(1, threads):
    threading.Thread(target=count, args=(index,), daemon=True).start()
count(0)
"""


@dataclass
class Counting:
    """A process whose threads count; ``file`` has the counters."""

    process: subprocess.Popen[bytes]
    file: Path
    threads: int

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.process.pid

    def counters(self) -> tuple[int, ...]:
        """Return the counter of each thread."""
        return struct.unpack(f"<{self.threads}Q", self.file.read_bytes().ljust(4096, b"\0")[: 8 * self.threads])

    def runs_on(self) -> None:
        """Return when every thread has counted further; fail if one does not."""
        before = self.counters()
        wait_for(lambda: all(now > then for now, then in zip(self.counters(), before)), "it stands still")
        assert self.process.poll() is None and self.tracer() == 0

    def stands(self) -> bool:
        """Return whether no thread counts: the counters are equal twice, with time for each in between."""
        before = self.counters()
        time.sleep(0.05)
        return self.counters() == before

    def tracer(self) -> int:
        """Return the tracer of the process, 0 for none."""
        return programs.tracer(self.pid)


def wait_for(condition: Callable[[], bool], failure: str) -> None:
    """Return when ``condition`` is true; fail if it does not become so."""
    deadline = time.monotonic() + programs.PATIENCE
    while not condition():
        assert time.monotonic() < deadline, failure
        time.sleep(0.001)


@pytest.fixture(params=[1, 6], ids=["one thread", "six threads"])
def counting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Counting]:
    """Yield a process that counts."""
    file = tmp_path / "counters"
    file.touch()
    command = [programs.interpreter_of("stripped"), "-I", "-c", COUNTERS, str(file), str(request.param)]
    with subprocess.Popen(command) as process:
        target = Counting(process, file, request.param)
        try:
            wait_for(lambda: all(target.counters()), "it did not start")
            yield target
        finally:
            process.kill()


def test_the_counters_tell(counting: Counting) -> None:
    """Check the means of this test: a stopped process is recognised as stopped, a running one as running."""
    os.kill(counting.pid, signal.SIGSTOP)
    wait_for(counting.stands, "SIGSTOP did not stop it")
    os.kill(counting.pid, signal.SIGCONT)
    counting.runs_on()


def test_it_runs_on_after_every_command(counting: Counting) -> None:
    """Check that the process runs on after every command."""
    for noun in NOUNS:
        done = programs.gdbheap(*filter(None, [noun]), str(counting.pid), "--json")
        assert done.returncode == 0, done
        counting.runs_on()


def start(counting: Counting, tmp_path: Path) -> subprocess.Popen[bytes]:
    """Return a Python process that has stopped the target through the library, and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", LIBRARY, str(counting.pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    assert process.stdout is not None and process.stdout.readline() == b"in\n"
    assert counting.tracer() == process.pid and counting.stands()
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGSEGV])
def test_killed_while_it_stands(counting: Counting, tmp_path: Path, number: signal.Signals) -> None:
    """Check that the target is released, by the kernel or the block, if gdbheap is ended by any signal during the
    stop."""
    process = start(counting, tmp_path)
    process.send_signal(number)
    process.communicate()
    assert process.returncode != 0
    counting.runs_on()


def test_suspended_while_it_stands(counting: Counting, tmp_path: Path) -> None:
    """Check that Ctrl-Z is delayed until the target runs again."""
    process = start(counting, tmp_path)
    process.send_signal(signal.SIGTSTP)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    counting.runs_on()
    process.send_signal(signal.SIGCONT)
    process.communicate()


def test_the_command_killed_in_the_middle(counting: Counting) -> None:
    """Check kill -9 and Ctrl-C as soon as the command traces the target, again and again."""
    for number in (signal.SIGKILL, signal.SIGINT) * 3:
        process = subprocess.Popen(
            [str(programs.GDBHEAP), "pyobjects", str(counting.pid)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        while process.poll() is None and counting.tracer() != process.pid:
            pass
        process.send_signal(number)
        _, errors = process.communicate(timeout=programs.PATIENCE)
        assert "Traceback" not in errors and len(errors.splitlines()) <= 1
        counting.runs_on()


def test_interrupted_at_any_moment(counting: Counting, rng: random.Random) -> None:
    """Check Ctrl-C at random moments from the start on: one line at most, no traceback, and the target runs on."""
    whole = time.monotonic()
    programs.gdbheap(str(counting.pid))
    whole = time.monotonic() - whole
    for _ in range(12):
        process = subprocess.Popen(
            [str(programs.GDBHEAP), str(counting.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        time.sleep(whole * rng.random())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=programs.PATIENCE)
        assert process.returncode is not None
        counting.runs_on()


def test_nowhere_to_write(counting: Counting) -> None:
    """Check a full disk, a closed pipe, and no standard output at all: an error or quiet, and the target runs on."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [str(programs.GDBHEAP), str(counting.pid)], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    counting.runs_on()
    for redirection in (">&-", ">&- 2>&-", "| true", "</dev/null >/dev/full 2>/dev/full"):
        line = f'"$0" {counting.pid} {redirection}'
        done = subprocess.run(["sh", "-c", line, str(programs.GDBHEAP)], capture_output=True, text=True)
        assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 1, done
        counting.runs_on()


def test_too_little_memory(counting: Counting) -> None:
    """Check that gdbheap answers or ends with any limit of address space, and that the target runs on."""
    statuses = set()
    for megabytes in (20, 40, 60, 80, 100, 120, 150, 200, 300, 4000):
        done = programs.gdbheap("pyobjects", str(counting.pid), preexec_fn=limit(megabytes))
        statuses.add(done.returncode)
        counting.runs_on()
    assert 0 in statuses and len(statuses) > 1


def limit(megabytes: int) -> Callable[[], None]:
    """Return a function that sets the limit in a child."""
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def test_no_descriptors_left(counting: Counting) -> None:
    """Check that gdbheap answers or says why not, in one line, if hardly any open files are allowed."""
    for number in (4, 6, 8, 10, 11, 12, 13, 16, 24, 64):
        done = programs.gdbheap(
            str(counting.pid), preexec_fn=lambda n=number: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))
        )
        assert done.returncode == 0 or len(done.stderr.splitlines()) == 1, done
        counting.runs_on()
    assert done.returncode == 0


def test_what_was_stopped_stays_stopped(counting: Counting) -> None:
    """Check that no command undoes a job-control stop, and that the process continues at SIGCONT."""
    os.kill(counting.pid, signal.SIGSTOP)
    wait_for(counting.stands, "SIGSTOP did not stop it")
    before = counting.counters()
    for noun in NOUNS:
        assert programs.gdbheap(*filter(None, [noun]), str(counting.pid), "--json").returncode == 0
        assert counting.stands() and counting.counters() == before and counting.tracer() == 0
    os.kill(counting.pid, signal.SIGCONT)
    counting.runs_on()


def test_signals_are_not_lost(counting: Counting, tmp_path: Path) -> None:
    """Check that a signal that comes during the stop reaches the target afterwards."""
    process = start(counting, tmp_path)
    os.kill(counting.pid, signal.SIGTERM)
    assert counting.process.poll() is None
    process.communicate(b"\n")
    assert counting.process.wait(programs.PATIENCE) == -signal.SIGTERM


def test_the_target_dies_in_the_middle(counting: Counting) -> None:
    """Check kill -9 of the target while gdbheap reads it: gdbheap ends by itself, without a traceback."""
    process = subprocess.Popen(
        [str(programs.GDBHEAP), "pyobjects", str(counting.pid)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and counting.tracer() != process.pid:
        pass
    counting.process.kill()
    _, errors = process.communicate(timeout=programs.PATIENCE)
    assert process.returncode in (0, 1, 4, 5) and "Traceback" not in errors and len(errors.splitlines()) <= 1, errors


@pytest.mark.cases(4)
@pytest.mark.parametrize("noun", NOUNS)
def test_forked_processes_still_share(noun: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that reading pages that a fork left shared copies none, here or in the child."""
    command = programs.c_program("held", rng.getrandbits(30), 400, 200_000, 8)
    with programs.running(command, tmp_path) as target:
        before = [kernel.in_rollup(target.pid, key) for key in ("Shared_Dirty", "Private_Dirty", "Pss")]
        answer = programs.gdbheap(*filter(None, [noun]), str(target.pid))
        after = [kernel.in_rollup(target.pid, key) for key in ("Shared_Dirty", "Private_Dirty", "Pss")]
    assert before[0] > 1 << 20, "nothing is shared"
    assert answer.returncode in (0, 5), answer.stderr
    assert abs(before[2] - after[2]) < 64 * 1024 and before[:2] == after[:2]
