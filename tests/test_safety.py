"""Whatever happens to gdbheap, the process that it looks at runs on; what was stopped before stays stopped."""

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
    """A process whose threads count; ``file`` holds the counters."""

    process: subprocess.Popen[bytes]
    file: Path
    threads: int

    @property
    def pid(self) -> int:
        """Return its id."""
        return self.process.pid

    def counters(self) -> tuple[int, ...]:
        """Return how far each thread has come."""
        return struct.unpack(f"<{self.threads}Q", self.file.read_bytes().ljust(4096, b"\0")[: 8 * self.threads])

    def runs_on(self) -> None:
        """Return when every thread has counted further than now; fail if one does not."""
        before = self.counters()
        wait_for(lambda: all(now > then for now, then in zip(self.counters(), before)), "it stands still")
        assert self.process.poll() is None and self.tracer() == 0

    def stands(self) -> bool:
        """Return whether no thread counts: twice the same, with time for each between."""
        before = self.counters()
        time.sleep(0.05)
        return self.counters() == before

    def tracer(self) -> int:
        """Return who traces it, 0 for nobody."""
        return programs.tracer(self.pid)


def wait_for(condition: Callable[[], bool], failure: str) -> None:
    """Return when ``condition`` is true; fail when it does not become so."""
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
    """The test's own means: a stopped process is seen to stand, a running one to run."""
    os.kill(counting.pid, signal.SIGSTOP)
    wait_for(counting.stands, "SIGSTOP did not stop it")
    os.kill(counting.pid, signal.SIGCONT)
    counting.runs_on()


def test_it_runs_on_after_every_command(counting: Counting) -> None:
    """The plain case."""
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
    """Ended by any signal in the middle of the stop, the kernel or the block lets the target go."""
    process = start(counting, tmp_path)
    process.send_signal(number)
    process.communicate()
    assert process.returncode != 0
    counting.runs_on()


def test_suspended_while_it_stands(counting: Counting, tmp_path: Path) -> None:
    """Ctrl-Z is held back until the target runs again."""
    process = start(counting, tmp_path)
    process.send_signal(signal.SIGTSTP)
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    counting.runs_on()
    process.send_signal(signal.SIGCONT)
    process.communicate()


def test_the_command_killed_in_the_middle(counting: Counting) -> None:
    """kill -9 and Ctrl-C as soon as the command is seen to trace the target, again and again."""
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
    """Ctrl-C at random moments from the start on: one line at most, no traceback, and the target runs on."""
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
    """A full disk, a closed pipe, no standard output at all: an error or quiet, and the target runs on."""
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
    """Whatever address space gdbheap is given, it answers or ends, and the target runs on."""
    statuses = set()
    for megabytes in (20, 40, 60, 80, 100, 120, 150, 200, 300, 4000):
        done = programs.gdbheap("pyobjects", str(counting.pid), preexec_fn=limit(megabytes))
        statuses.add(done.returncode)
        counting.runs_on()
    assert 0 in statuses and len(statuses) > 1


def limit(megabytes: int) -> Callable[[], None]:
    """Return what sets the limit in a child."""
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def test_no_descriptors_left(counting: Counting) -> None:
    """With hardly any open files allowed, gdbheap answers or says why not."""
    for number in (4, 6, 8, 10, 12, 16, 24, 64):
        done = programs.gdbheap(
            str(counting.pid), preexec_fn=lambda n=number: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))
        )
        assert done.returncode == 0 or done.stderr, done
        counting.runs_on()
    assert done.returncode == 0


def test_what_was_stopped_stays_stopped(counting: Counting) -> None:
    """A job-control stop is not undone by any command, and the process continues when it is told to."""
    os.kill(counting.pid, signal.SIGSTOP)
    wait_for(counting.stands, "SIGSTOP did not stop it")
    before = counting.counters()
    for noun in NOUNS:
        assert programs.gdbheap(*filter(None, [noun]), str(counting.pid), "--json").returncode == 0
        assert counting.stands() and counting.counters() == before and counting.tracer() == 0
    os.kill(counting.pid, signal.SIGCONT)
    counting.runs_on()


def test_signals_are_not_lost(counting: Counting, tmp_path: Path) -> None:
    """A signal that comes while the target stands still reaches it afterwards."""
    process = start(counting, tmp_path)
    os.kill(counting.pid, signal.SIGTERM)
    assert counting.process.poll() is None
    process.communicate(b"\n")
    assert counting.process.wait(programs.PATIENCE) == -signal.SIGTERM


def test_the_target_dies_in_the_middle(counting: Counting) -> None:
    """kill -9 of the target while gdbheap reads it: gdbheap ends by itself, without a traceback."""
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
    """Reading what a fork left shared copies no page: what is shared stays so, here and in the child."""
    command = programs.c_program("held", rng.getrandbits(30), 400, 200_000, 8)
    with programs.running(command, tmp_path) as target:
        before = [kernel.in_rollup(target.pid, key) for key in ("Shared_Dirty", "Private_Dirty", "Pss")]
        answer = programs.gdbheap(*filter(None, [noun]), str(target.pid))
        after = [kernel.in_rollup(target.pid, key) for key in ("Shared_Dirty", "Private_Dirty", "Pss")]
    assert before[0] > 1 << 20, "nothing is shared"
    assert answer.returncode in (0, 5), answer.stderr
    assert abs(before[2] - after[2]) < 64 * 1024 and before[:2] == after[:2]
