"""Make thousands of copies of a busy program by itself, and print the changes that it noticed. ``make matrix`` runs it:

    python tests/own_copy_storm.py [COPIES] [MIB] [SNAPSHOTS]

with the Python in which gdbheap is installed. It makes COPIES with an idle reader while threads allocate, hold locks,
start children, write to pipes and wait for signals; then SNAPSHOTS in signal handlers. It exits with 1 if it noticed a
change: a lost signal, a foreign child, a leftover descriptor or zombie, a wait that was cut short, or a minute without
a copy (a deadlock).
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import gdbheap
from gdbheap._native import OwnCopy

READER = [b"/bin/true"]
STUCK_SECONDS = 60


class Load:
    """The work of the program during the copies, and its counts."""

    def __init__(self, mebibytes: int) -> None:
        self.kept = [bytes(400) for _ in range(mebibytes << 20 >> 9)]
        self.over, self.lock = threading.Event(), threading.Lock()
        self.wrong: list[str] = []
        self.counts = {"allocations": 0, "children": 0, "pipes": 0, "forks": 0, "signals": 0}
        self._wanted = 0
        signal.signal(signal.SIGUSR2, self._hear)
        self._threads = [
            threading.Thread(target=one)
            for one in (self._allocate, self._allocate, self._start, self._pipe, self._fork)
        ]

    def _hear(self, _number: int, _frame: object) -> None:
        self.counts["signals"] += 1

    def _allocate(self) -> None:
        while not self.over.is_set():
            with self.lock:
                self.kept[: 1 << 10] = [bytes(400) for _ in range(1 << 10)]
                self.counts["allocations"] += 1
            logging.getLogger("storm").debug("a lock of the library's")

    def _start(self) -> None:
        while not self.over.is_set():
            if subprocess.run(["/bin/sh", "-c", "exit 3"]).returncode != 3:
                self.wrong.append("a child of the program ended otherwise than it did")
            self.counts["children"] += 1

    def _pipe(self) -> None:
        """Write to a pipe. A process that has the pipe's end open would make its reader wait."""
        while not self.over.is_set():
            reading, writing = os.pipe()
            os.write(writing, b"x")
            os.close(writing)
            with os.fdopen(reading, "rb") as stream:
                if stream.read() != b"x":
                    self.wrong.append("a pipe lost what was in it")
            self.counts["pipes"] += 1

    def _fork(self) -> None:
        while not self.over.is_set():
            child = os.fork()
            if child == 0:
                os._exit(5)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 5:
                self.wrong.append("a fork of the program ended otherwise than it did")
            self.counts["forks"] += 1
            time.sleep(0.01)

    def begin(self) -> None:
        """Start the work."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Wait for the end of the work."""
        self.over.set()
        for thread in self._threads:
            thread.join()

    def send(self) -> None:
        """Send a signal, and check that the last one arrived."""
        deadline = time.monotonic() + STUCK_SECONDS
        while self.counts["signals"] < self._wanted:
            if time.monotonic() > deadline:
                self.wrong.append("a signal was lost")
                return
            time.sleep(0)
        self._wanted += 1
        os.kill(os.getpid(), signal.SIGUSR2)


def children() -> list[str]:
    """Return the children of this process, zombies included."""
    found: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            found += (task / "children").read_text().split()
    return found


def snapshots(count: int, load: Load) -> None:
    """Write ``count`` snapshots in a signal handler, while another thread holds a lock of the program."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/now.heap"
        signal.signal(signal.SIGUSR1, lambda _number, _frame: gdbheap.snapshot(path) and None)
        for _ in range(count):
            os.kill(os.getpid(), signal.SIGUSR1)
            with gdbheap.open(path) as heap:
                if heap.pid != os.getpid():
                    load.wrong.append("a snapshot of somebody else")
            os.unlink(path)


def main(copies: int, mebibytes: int, count: int) -> int:
    """Make the copies, and print their cost and the changes that were noticed."""
    load = Load(mebibytes)
    before = len(os.listdir("/proc/self/fd"))
    load.begin()
    paused = []
    try:
        for _ in range(copies):
            faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
            load.send()
            copy = OwnCopy(READER, [])
            if copy.wait() != (0, b""):
                load.wrong.append("a reader ended otherwise than it did")
            paused.append(copy.paused)
        faulthandler.cancel_dump_traceback_later()
        snapshots(count, load)
    finally:
        load.end()
    left = len(os.listdir("/proc/self/fd")) - before
    load.wrong += ["descriptors are left"] if left > 0 else []
    load.wrong += ["children are left"] if children() else []
    ordered = sorted(paused)
    late = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    print(f"{copies} copies of {mebibytes} MiB by itself, {count} snapshots; meanwhile {load.counts}")
    times = [f"{1000 * one:.2f}" for one in (statistics.median(ordered), late, ordered[-1])]
    print(f"the calling thread stood: median {times[0]}, 99 % {times[1]}, longest {times[2]} ms")
    print("\n".join(sorted(set(load.wrong))) or "it noticed nothing")
    return int(bool(load.wrong))


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:4]]
    sys.exit(main(*given, *[10_000, 64, 20][len(given) :]))
