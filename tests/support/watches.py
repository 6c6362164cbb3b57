"""Running watches of ``gdbheap watch``, and processes that grow for them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.programs import GDBHEAP, PATIENCE, SOURCES, interpreters

MIB = 1 << 20
# Linux's <linux/ptrace.h>.
PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17


@contextmanager
def _ready(command: list[str], word: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a program that has printed this word on a line; it is killed in any case."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == f"{word}\n"
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def swelling(rate: float, most: int) -> Iterator[subprocess.Popen[str]]:
    """Yield a program that grows by ``rate`` bytes a second to ``most`` more than it has, once it reads a line."""
    found = interpreters()
    if not found:
        pytest.skip("no CPython to run the program")
    command = [found[0].executable, "-I", str(SOURCES / "swelling.py"), str(rate), str(most)]
    with _ready(command, "ready") as process:
        yield process


def go(process: subprocess.Popen[str]) -> None:
    """Let the program grow."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def grown(process: subprocess.Popen[str]) -> None:
    """Return when the program has grown to its end: it has run on until then."""
    assert process.stdout is not None and process.stdout.readline() == "full\n"


def rss(pid: int) -> int:
    """Return the RSS of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Watching:
    """A started ``gdbheap watch --json``."""

    def __init__(self, *words: str, **options: Any) -> None:
        """Start the watch."""
        command = [str(GDBHEAP), "watch", *words, "--json"]
        environment = {**os.environ, "GDBHEAP_DEBUG": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **options
        )  # fmt: skip

    def next(self) -> dict[str, Any]:
        """Return the next event; fail if the watch ends before."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.rest()
        found: dict[str, Any] = json.loads(line)
        return found

    def event(self, kind: str) -> dict[str, Any]:
        """Return the next event of that kind; fail if the watch ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found: dict[str, Any] = json.loads(line)
            if found["event"] == kind:
                return found
        raise AssertionError(f"no {kind}: {self.process.wait(PATIENCE)}, {self.rest()}")

    def rest(self) -> str:
        """Return the watch's standard error once it has ended."""
        return str(self.process.communicate(timeout=PATIENCE)[1])

    def end(self, number: int = signal.SIGTERM) -> dict[str, Any]:
        """Ask the watch to end; return its last event. Check that it prints nothing else, with status 0."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        assert (self.process.returncode, err) == (0, ""), (out, err)
        last: dict[str, Any] = json.loads(out.splitlines()[-1])
        assert last["event"] == "end"
        return last


@contextmanager
def watching(*words: str, **options: Any) -> Iterator[Watching]:
    """Yield a watch, which ends with the block."""
    started = Watching(*words, **options)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
        started.process.communicate()


# Holds the process as a debugger does, while it runs on: PTRACE_SEIZE. The second word becomes the tracer's name.
SEIZE = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(15, sys.argv[2].encode())
assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0
print("in", flush=True)
input()
"""


@contextmanager
def traced(pid: int, name: str = "tracer") -> Iterator[subprocess.Popen[str]]:
    """Yield a program of that name, which traces the process until it reads a line."""
    with _ready([sys.executable, "-c", SEIZE, str(pid), name], "in") as holder:
        yield holder
