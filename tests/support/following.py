"""gdbheap as it follows a process in the background, until the test ends it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.programs import GDBHEAP, PATIENCE

CODE_BYTES = 4 << 20
PAGE, BREAKPOINT = 4096, 0xCC


class Follower:
    """A command that follows a process. ``answer`` ends it as Ctrl-C does, unless it has ended."""

    def __init__(self, noun: str, *arguments: str) -> None:
        environment = {**os.environ, "GDBHEAP_DEBUG": "1"}
        self.process = subprocess.Popen(
            [str(GDBHEAP), noun, "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            # A process group of its own, which job control can stop: its parent is in another group of the session.
            preexec_fn=os.setpgrp,
        )

    def ends(self) -> dict[str, Any]:
        """Return the answer of a command that ends by itself."""
        out, errors = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, errors
        found: dict[str, Any] = json.loads(out)
        return found

    def answer(self) -> dict[str, Any]:
        """End the command, and return its answer."""
        self.process.send_signal(signal.SIGINT)
        return self.ends()


@contextlib.contextmanager
def following(pid: int, *arguments: str) -> Iterator[Follower]:
    """Follow a process until the block ends. The block begins once the process's code has changed."""
    before = code(pid)
    follower = Follower(*arguments)
    waiting = threading.Event()
    try:
        while code(pid) == before and follower.process.poll() is None:
            waiting.wait(0.01)
        yield follower
    finally:
        if follower.process.poll() is None:
            follower.process.kill()
        follower.process.communicate()


@contextlib.contextmanager
def told_of(pid: int, *arguments: str) -> Iterator[Follower]:
    """Follow the growth of a process with a tracepoint until the block ends. The block begins once calls
    are counted.
    """
    follower = Follower("growth", str(pid), "--perf", *arguments)
    try:
        assert follower.process.stderr is not None
        line = follower.process.stderr.readline()
        assert "is followed" in line, line + follower.process.stderr.read()
        yield follower
    finally:
        if follower.process.poll() is None:
            follower.process.kill()
        follower.process.communicate()


def code(pid: int) -> dict[int, bytes]:
    """Return the executable bytes of libc and the dynamic linker in a process, by address."""
    found = {}
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            place, permissions, *_, path = [*line.split(), ""][:7][:2] + [line.rstrip().rsplit(" ", 1)[-1]]
            if "x" in permissions and Path(path).name.startswith(("libc.", "libc-", "ld-")):
                start, end = (int(word, 16) for word in place.split("-"))
                found[start] = os.pread(memory.fileno(), min(end - start, CODE_BYTES), start)
    return found


def patched(pid: int, before: dict[int, bytes]) -> int:
    """Return how many bytes of code differ.

    Two kinds of bytes do not count: the last, unused bytes of each mapping, which stay changed, and breakpoints that a
    killed gdb left in the dynamic linker.
    """
    now = code(pid)
    pairs = (pair for start, bytes_ in before.items() for pair in zip(bytes_[:-PAGE], now[start][:-PAGE]))
    return sum(one != other and other != BREAKPOINT for one, other in pairs)


def becomes_whole(pid: int, before: dict[int, bytes], seconds: float) -> bool:
    """Return whether the code is restored within ``seconds``. A guard process restores it after its
    command was killed.
    """
    deadline = time.monotonic() + seconds
    while patched(pid, before):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def changed_code(pid: int) -> int:
    """Return a checksum of the process's private executable pages, which are those that were patched."""
    changed, executable = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not line.startswith(("Vm", "Private")):
            executable = len(words) > 1 and "x" in words[1]
        elif executable and line.startswith("Private_Dirty"):
            changed += int(words[1])
    return changed
