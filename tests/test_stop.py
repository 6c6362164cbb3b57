"""A stop costs the process no signal, no system call, and no unnecessary time."""

from __future__ import annotations

import contextlib
import os
import platform
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import busy, programs
from support.library import warnings_of

from gdbheap._native import Stop
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.errors import GdbheapError
from gdbheap.heap import Heap
from gdbheap.targets.process import stopped

# argv: the target, the number of kills, a seed. A child stops the target again and again and is killed at any moment.
KILLED = """
import os, random, signal, sys, time
from gdbheap._native import Stop
from gdbheap.allocators.glibc.allocator import GlibcAllocator
pid, rounds, rng = int(sys.argv[1]), int(sys.argv[2]), random.Random(sys.argv[3])
for _ in range(rounds):
    child = os.fork()
    if child == 0:
        while True:
            Stop(pid).release()
    time.sleep(rng.uniform(0, 0.012))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
# The offset at which blocked.c counts its calls of epoll_wait.
EPOLL_TURNS = 16
EMPTY = "import time\nwhile True: time.sleep(0.01)\n"


def test_no_call_is_cut_short(tmp_path: Path, rng: random.Random) -> None:
    """Check that calls that the kernel would end with EINTR continue, that signals arrive, and that the program's
    own checks pass."""
    with busy.started("blocked", tmp_path) as target:
        mended = 0
        for _ in range(150):
            stop = Stop(target.pid)
            mended += stop.mended
            stop.release()
            time.sleep(rng.uniform(0, 0.003))
        target.unharmed()
        assert mended, "the calls that need mending were not met"


def test_limits_go_on_whoever_stops(tmp_path: Path, rng: random.Random) -> None:
    """Check stops by one process after the other, and by one that existed before: no wait ends early, and all end."""
    with busy.started("blocked", tmp_path) as target:
        turns, began = target.words()[EPOLL_TURNS], time.monotonic()
        for _ in range(60):
            for _ in range(rng.randrange(3)):
                Stop(target.pid).release()
            child = os.fork()
            if child == 0:
                Stop(target.pid).release()
                os._exit(0)
            os.waitpid(child, 0)
            time.sleep(rng.uniform(0, 0.08))
        target.unharmed()
        # Each lasts 100 ms; half of that allows for a busy machine. Waits that began anew at each stop hardly ended.
        whole = (time.monotonic() - began) / 0.1
        assert target.words()[EPOLL_TURNS] - turns > whole / 2


def test_no_signal_dies_with_the_tracer(tmp_path: Path, rng: random.Random) -> None:
    """Check kill -9 at any moment of a stop: every signal that was sent arrives."""
    with busy.started("blocked", tmp_path) as target:
        command = [sys.executable, "-c", KILLED, str(target.pid), "300", str(rng.random())]
        subprocess.run(command, check=True, cwd=tmp_path, timeout=programs.PATIENCE)
        target.unharmed(but=("EINTR",))


def test_threads_that_come_and_go(tmp_path: Path) -> None:
    """Check that a thread that ends while it is seized does not make the stop fail."""
    command = programs.c_program("passing", 4)
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            for _ in range(250):
                Stop(process.pid).release()
            assert process.poll() is None
        finally:
            process.kill()


def test_a_thread_that_cannot_stop(tmp_path: Path) -> None:
    """Check a parent in vfork(), which sleeps uninterruptibly: gdbheap does not keep the other threads stopped until it
    wakes, and the answer mentions the thread.
    """
    with busy.started("vforked", tmp_path, counters=3) as target:
        busy.wait_for(lambda: "D" in states(target.pid), "nobody is in state D")
        with stopped(target.pid) as process:
            assert [warning for warning in process.warnings if "state D" in warning]
            assert len(process.threads) == 5
        assert process.stopped_seconds is not None and process.stopped_seconds < 5
        before = target.words()
        busy.wait_for(lambda: all(now > then for now, then in zip(target.words()[:3], before)), "it stands still")
        done = programs.gdbheap("info", str(target.pid))
        assert done.returncode == 0 and "state D" in done.stdout, done


def states(pid: int) -> list[str]:
    """Return the state letter of each thread."""
    return [path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]


def test_several_at_once() -> None:
    """Check that two commands about the same process wait for each other."""
    with subprocess.Popen([programs.interpreter_of("stripped"), "-I", "-c", EMPTY]) as target:
        try:
            busy.wait_for_call(target.pid, "clock_nanosleep")
            command = [str(programs.GDBHEAP), "info", str(target.pid)]
            several = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(3)]
            ends = [(process.communicate(timeout=programs.PATIENCE), process.returncode) for process in several]
            assert ends == [((None, b""), 0)] * 3
        finally:
            target.kill()


def _hear_hangups() -> None:
    """Do not ignore SIGHUP, as nohup(1) would leave it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end(number: signal.Signals, tmp_path: Path) -> None:
    """Check that a signal that asks gdbheap to end gets one line and the status of an interrupted command."""
    with subprocess.Popen([programs.interpreter_of("stripped"), "-I", "-c", EMPTY]) as target:
        try:
            busy.wait_for_call(target.pid, "clock_nanosleep")
            command = [str(programs.GDBHEAP), "retained", str(target.pid)]
            for _ in range(20):
                process = subprocess.Popen(
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=_hear_hangups
                )
                while process.poll() is None and programs.tracer(target.pid) != process.pid:
                    pass
                process.send_signal(number)
                _, errors = process.communicate(timeout=programs.PATIENCE)
                if process.returncode:
                    break
            # A command that was already answered has none of this.
            assert process.returncode == 1 and errors == (
                f"gdbheap: ended by {number.name}; a process that was stopped runs on\n"
            )
        finally:
            target.kill()


def test_descriptors_run_out() -> None:
    """Check that too few open files give a line that names the limit, and no internal error."""
    with subprocess.Popen([programs.interpreter_of("stripped"), "-I", "-c", EMPTY]) as target:
        try:
            busy.wait_for_call(target.pid, "clock_nanosleep")
            lines = set()
            for number in range(5, 20, 3):
                # A shell needs eleven descriptors itself, to run a script.
                done = subprocess.run(
                    [programs.GDBHEAP.parent / "gdbheap-python", "info", str(target.pid)],
                    preexec_fn=lambda n=number: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)),
                    env={**os.environ, "GDBHEAP_DEBUG": "1"},
                    capture_output=True,
                    text=True,
                )
                assert done.returncode in (0, 1), done
                assert "fault of gdbheap" not in done.stderr and "Traceback" not in done.stderr, done
                lines.update(done.stderr.splitlines())
            assert any("the limit on open files is too low" in line for line in lines), lines
        finally:
            target.kill()


def test_time_is_kept(tmp_path: Path) -> None:
    """Check that the process runs again after the limit, whatever gdbheap does, and that nothing more is read."""
    with busy.started("blocked", tmp_path) as target:
        with pytest.raises(GdbheapError, match="was released after"), stopped(target.pid, 2) as process:
            pointer = process.threads[0].sp
            assert process.space.word(pointer) == word_of(target.pid, pointer) and process.cut_short is None
            before = target.words()
            busy.wait_for(lambda: target.words() != before, "it stands still")
            assert programs.tracer(target.pid) == 0
            process.space.word(pointer)
        heap = Heap(process)
        assert process.cut_short is not None and heap.partial and heap.damage == []
        assert "was released after" in warnings_of(heap)[-1] and "--max-stop" in warnings_of(heap)[-1]
        target.unharmed()


def word_of(pid: int, address: int) -> int:
    """Return a word of a process's memory."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return int.from_bytes(memory.read(8), "little")


# 64 MiB of chunks; 16 bytes at a time they were four million attempts.
MANY_CHUNKS = "held = [bytes(600) for _ in range(100_000)]; print('ready', flush=True); input()"


def test_a_walk_that_is_too_late(tmp_path: Path) -> None:
    """Check that after the process was resumed, each of its pages is tried a few times, not each place where a chunk
    may begin."""
    with programs.running([sys.executable, "-c", MANY_CHUNKS], tmp_path) as target:
        found = 0
        with contextlib.suppress(GdbheapError), stopped(target.pid, limit=2) as process:
            heap, stop = Heap(process), process.tracer
            allocator = heap.allocator(GlibcAllocator)
            assert stop is not None and allocator.malloc.arenas
            busy.wait_for(lambda: stop.expired, "it stands for ever")
            with contextlib.suppress(GdbheapError):
                _ = allocator.bins
            found = stop.missed
        assert 0 < found < 4 * (64 << 20) // 4096


def test_too_short_a_time(tmp_path: Path) -> None:
    """Check that one line and status 1 are given if nothing could be read in time, and that the process runs on."""
    with busy.started("blocked", tmp_path) as target:
        done = programs.gdbheap(str(target.pid), "--max-stop=0.00001")
        assert done.returncode == 1 and done.stdout == "", done
        assert "(--max-stop)" in done.stderr and len(done.stderr.splitlines()) == 1
        target.unharmed()
        for wrong in ("-1", "nan", "inf", "x"):
            done = programs.gdbheap(str(target.pid), f"--max-stop={wrong}")
            assert done.returncode == 2 and "not a number of seconds" in done.stderr


WAITS = "import select; select.epoll().poll(2); print('over', flush=True)"
# epoll_wait and epoll_pwait, which is the only one of them on aarch64.
EPOLL = {"x86_64": ("232 ", "281 "), "aarch64": ("22 ",)}[platform.machine()]


def test_a_wait_ends_in_time() -> None:
    """Check that the time limit of a wait continues over stops, and does not begin anew at each."""
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + programs.PATIENCE
        while not Path(f"/proc/{process.pid}/syscall").read_text().startswith(EPOLL):
            assert process.poll() is None and time.monotonic() < deadline
        while process.poll() is None:
            assert time.monotonic() < deadline, "it waits for ever"
            with contextlib.suppress(GdbheapError), stopped(process.pid):
                pass
        assert process.communicate()[0] == "over\n"


# A Python handler runs only after the C handler has ended the wait, which has no time limit.
HEARS = "import select, signal, sys; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7)); select.epoll().poll()"


@pytest.mark.parametrize("when", ["before the stop", "during the stop", "after the stop"])
def test_a_handler_ends_a_restarted_call(when: str, rng: random.Random) -> None:
    """Check that a call that was restarted still ends with EINTR if a handler runs, whenever the signal comes."""
    for _ in range(10):
        with subprocess.Popen([sys.executable, "-c", HEARS]) as process:
            deadline = time.monotonic() + programs.PATIENCE
            while not Path(f"/proc/{process.pid}/syscall").read_text().startswith(EPOLL):
                assert process.poll() is None and time.monotonic() < deadline
            for _ in range(rng.randrange(3)):
                Stop(process.pid).release()
            if when == "before the stop":
                process.send_signal(signal.SIGUSR1)
            with contextlib.suppress(GdbheapError, OSError):
                stop = Stop(process.pid)
                if when == "during the stop":
                    process.send_signal(signal.SIGUSR1)
                stop.release()
            if when == "after the stop":
                process.send_signal(signal.SIGUSR1)
            assert process.wait(programs.PATIENCE) == 7
