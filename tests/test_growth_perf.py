"""``heap growth --perf``: a tracepoint reports the calls that the program counts itself, and no thread is stopped."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.following import Follower, code, following, patched, told_of
from support.programs import PATIENCE, Running, c_program, gdbheap, running
from support.tracepoints import beside_readable_format, why_not
from support.users import own_process, run_as, unprivileged

from gdbheap.answers.distribution import SizeSums
from gdbheap.following.growth import Cost, Growth, counted
from gdbheap.host.procfs import STATE, stat_fields
from gdbheap.report.text.style import Style
from gdbheap.report.words.growth import render

NO_GROWTH = {"came": 0, "went": 0, "by_stacks": 0}
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
# Rounds of a schedule whose calls, with 8 KiB of stack each, fit into the ring buffer of one processor: none can be
# lost.
FEW, MANY = 8, 40
# Other records in the ring buffers: starts, ends and names of threads.
OTHER_RECORDS = 32
BUSY = """
import mmap, time
print("busy", flush=True)
while True:
    mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    time.sleep(0.0002)
"""


@pytest.fixture(autouse=True, scope="module")
def rights() -> None:
    """Skip if the kernel's tracepoints cannot be used."""
    reason = why_not()
    if reason:
        pytest.skip(reason)


def grows(rng: random.Random, rounds: int) -> list[str]:
    """Return the command of a program that grows by a schedule in four threads."""
    return c_program("grows", rng.randrange(1, 1 << 20), rounds)


def said(target: Running) -> dict[str, Any]:
    """Return the figures that the program prints."""
    found: dict[str, Any] = json.loads(target.stderr.splitlines()[-1])
    return found


def by_id(answer: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return {id: (calls, bytes)} of all operations."""
    return {row["id"]: (row["calls"], row["bytes"]) for row in answer["operations"]}


def by_stack(answer: dict[str, Any]) -> dict[tuple[str, ...], tuple[int, int]]:
    """Return {names of frames: (calls, bytes)}."""
    return {tuple(frame["name"] for frame in row["frames"]): (row["calls"], row["bytes"]) for row in answer["sites"]}


def suspend(follower: Follower) -> None:
    """Stop a command, and wait until each of its threads has stopped."""
    tasks = Path(f"/proc/{follower.process.pid}/task")
    follower.process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE
    while any(stat_fields((task / "stat").read_bytes())[STATE] != "T" for task in tasks.iterdir()):
        assert time.monotonic() < deadline, "it does not stop"
        time.sleep(0.001)


def all_calls(answer: dict[str, Any]) -> int:
    """Return the number of calls that were seen."""
    return sum(row["calls"] for row in answer["operations"])


def from_map(answer: dict[str, Any]) -> tuple[int, int]:
    """Return the calls and bytes of mmap from the function ``map``."""
    found = [sums for names, sums in by_stack(answer).items() if names[-2:] in (("map", "mmap"), ("map", "mmap64"))]
    return sum(calls for calls, _ in found), sum(size for _, size in found)


def check_table(answer: dict[str, Any], truth: dict[str, Any]) -> None:
    """Check all figures that the program counts."""
    found = by_id(answer)
    # Threads' stacks and arenas are mapped and unmapped too; only malloc's own are reserved.
    assert found["mmap"] == tuple(truth["mmap"])
    assert found["mremap"] == tuple(truth["mremap"])
    assert found["munmap"] == tuple(truth["munmap"])
    assert found["brk"] == tuple(truth["brk"])
    assert found["failed"][0] == truth["failed"]
    assert (answer["lost"], answer["unseen"]) == (0, NO_GROWTH)


def test_schedule(rng: random.Random, tmp_path: Path) -> None:
    """Check calls and bytes of each kind, to the byte, in four threads that start meanwhile, without the child's;
    the code is untouched, and no thread was stopped."""
    with running(grows(rng, MANY), tmp_path) as target:
        before = code(target.pid)
        with told_of(target.pid, "--no-stacks") as follower:
            target.go_on()
            assert patched(target.pid, before) == 0
            assert "TracerPid:\t0\n" in Path(f"/proc/{target.pid}/status").read_text()
            answer = follower.answer()
        check_table(answer, said(target))
    assert answer["cost"] == {"stops": 0, "stood": 0.0, "held": 0.0}
    assert (answer["why_ended"], answer["sites"]) == ("asked", [])


def test_stacks_as_when_it_stands(rng: random.Random, tmp_path: Path) -> None:
    """Check that stacks, calls and bytes are the same as from threads that are stopped at each call."""
    command = grows(rng, FEW)
    with running(command, tmp_path) as target, told_of(target.pid, "--top=all") as follower:
        target.go_on()
        told = follower.answer()
        check_table(told, said(target))
    with running(command, tmp_path) as target:
        with following(target.pid, "growth", str(target.pid), "--top=all") as follower:
            target.go_on()
            stood = follower.answer()
    assert by_stack(told) == by_stack(stood)
    assert stood["lost"] is None and all_calls(told) == all_calls(stood) == stood["cost"]["stops"]


def test_folded(rng: random.Random, tmp_path: Path) -> None:
    """Check that folded lines add up to the total."""
    path = tmp_path / "folded"
    with running(grows(rng, FEW), tmp_path) as target, told_of(target.pid, f"--folded={path}") as follower:
        target.go_on()
        answer = follower.answer()
    lines = [line.rsplit(" ", 1) for line in path.read_text().splitlines()]
    assert sum(int(size) for _, size in lines) == answer["brk"]["bytes"] + answer["mmap"]["bytes"]
    # Without the lines of the source, which a frame has if the compiler wrote debug information.
    names = [re.sub(r" \([^()]*:\d+\)", "", names) for names, _ in lines]
    assert any(stack.endswith("work;step;mremap") for stack in names), lines


def test_threads_that_start_meanwhile(rng: random.Random, tmp_path: Path) -> None:
    """Check a process whose threads start by the hundred at the first reading: each counts once, and so do the
    threads that they start."""
    with running(c_program("spawns", 80), tmp_path) as target:
        time.sleep(0.3 * rng.random())
        with told_of(target.pid, "--no-stacks") as follower:
            target.go_on()
            answer = follower.answer()
        truth = said(target)
    assert truth["threads"] == 320
    # Their stacks are reserved first.
    assert (by_id(answer)["mmap"], answer["lost"]) == (tuple(truth["mmap"]), 0)


def test_lost(rng: random.Random, tmp_path: Path) -> None:
    """Check that calls without a reader are lost once the ring buffers are full, and counted: seen and lost calls
    add up to those of a run without loss."""
    command = grows(rng, 800)
    lost = None
    # On a loaded host, calls without stacks may be lost too.
    while lost != 0:
        with running(command, tmp_path) as target, told_of(target.pid, "--no-stacks") as follower:
            target.go_on()
            whole = follower.answer()
        lost = whole["lost"]
    with running(command, tmp_path) as target, told_of(target.pid) as follower:
        suspend(follower)
        target.go_on()
        follower.process.send_signal(signal.SIGCONT)
        answer = follower.answer()
    made = all_calls(whole)
    assert answer["lost"] > 0
    assert made <= all_calls(answer) + answer["lost"] <= made + OTHER_RECORDS


@pytest.mark.parametrize(("lost", "said"), [(0, ""), (1, "1 call was lost"), (2345, "2,345 calls were lost")])
def test_lost_in_words(lost: int, said: str) -> None:
    """Check that the report names the loss, and says that no thread was stopped."""
    none = counted(SizeSums())
    growth = Growth(1, 1.0, none, none, [], [], None, Cost(0, 0.0, 0.0), "gone", 6, 0, None, lost)
    text = " ".join(render(growth, 0, True, Style()).split())
    assert said in text and ("lost" in text) == bool(lost) and "no thread was stopped" in text


@contextlib.contextmanager
def busy(become: list[str]) -> Iterator[int]:
    """Yield the id of a process that constantly maps and unmaps."""
    with subprocess.Popen([*become, "-c", BUSY], stdout=subprocess.PIPE, cwd="/") as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def test_busy_program() -> None:
    """Check that the mappings agree even if calls are made while they are read."""
    with busy([sys.executable]) as pid:
        for _ in range(3):
            with told_of(pid, "--no-stacks", "--count=200") as follower:
                answer = follower.ends()
            assert (answer["lost"], answer["unseen"]) == (0, NO_GROWTH)
            assert answer["mmap"]["calls"] >= 200


def test_end_of_the_process(rng: random.Random, tmp_path: Path) -> None:
    """Check that the end of a process ends the answer, which has all its calls."""
    with running(grows(rng, FEW), tmp_path) as target, told_of(target.pid) as follower:
        target.go_on()
        truth = said(target)
        target.process.kill()
        target.process.wait()
        answer = follower.ends()
    assert (answer["why_ended"], answer["unseen"], answer["lost"]) == ("gone", None, 0)
    assert from_map(answer) == tuple(truth["mmap"])


def test_another_program(tmp_path: Path) -> None:
    """Check that a program that the process runs next is not counted."""
    with subprocess.Popen(["sh", "-c", "read line; exec sleep 60"], stdin=subprocess.PIPE, text=True) as process:
        try:
            with told_of(process.pid, "--no-stacks") as follower:
                assert process.stdin is not None
                process.stdin.write("\n")
                process.stdin.flush()
                answer = follower.ends()
        finally:
            process.kill()
    assert answer["why_ended"] == "exec" and not any(row["id"] == "mmap.file" for row in answer["operations"])


def test_survives_kills(rng: random.Random, tmp_path: Path) -> None:
    """Check that a command that is killed at any moment leaves nothing behind."""
    with running(grows(rng, FEW), tmp_path) as target:
        before = code(target.pid)
        for _ in range(5):
            with told_of(target.pid) as follower:
                target.go_on()
                time.sleep(0.02 * rng.random())
                follower.process.kill()
            assert patched(target.pid, before) == 0
        with told_of(target.pid, "--no-stacks") as follower:
            target.go_on()
            assert follower.answer()["unseen"] == NO_GROWTH
        assert target.process.poll() is None


def test_refused_for_a_command(tmp_path: Path) -> None:
    """Check that an unsupported use gives one line."""
    done = gdbheap("growth", "--perf", "--", "true")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1) and "--perf" in done.stderr


@pytest.fixture
def nobody() -> Iterator[list[str]]:
    """Yield the beginning of a command that runs gdbheap as an unprivileged user."""
    with unprivileged() as command:
        yield command


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Check that the command is not permitted, in one line with these words."""
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (3, "", 1), done
    assert all(word in done.stderr for word in words), done.stderr


def test_refused_without_tracefs(nobody: list[str]) -> None:
    """Check a user who may neither read tracefs nor mount it."""
    with own_process(nobody, "import signal; signal.pause()") as pid:
        refused(run_as(nobody, "growth", str(pid), "--perf", "--duration=1"), "root", "/sys/kernel/tracing")


def test_refused_by_the_kernel(nobody: list[str]) -> None:
    """Check a user who may read the description of a tracepoint but may not use it."""
    if int(PARANOID.read_text()) < 2:
        pytest.skip("kernel.perf_event_paranoid lets every user have tracepoints here")
    with own_process(nobody, "import signal; signal.pause()") as pid:
        command = beside_readable_format(nobody)
        refused(run_as(command, "growth", str(pid), "--perf", "--duration=1"), "CAP_PERFMON", PARANOID.name)


def test_with_one_right() -> None:
    """Check that CAP_PERFMON is enough if tracefs may be read."""
    with unprivileged("perfmon") as trusted, unprivileged() as nobody, busy(nobody[: nobody.index("-c")]) as pid:
        command = [*beside_readable_format(trusted), "growth", str(pid), "--perf"]
        done = run_as(command, "--no-stacks", "--count=100", "--json")
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
    assert answer["mmap"]["calls"] >= 100
    assert (answer["lost"], answer["unseen"]) == (0, NO_GROWTH)
