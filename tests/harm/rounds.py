"""Rounds of attach and release on programs under load: their cost, and the state of the programs afterwards."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from support import programs
from tabulate import tabulate

from harm.verdict import Watch, line_of

STOP, COMMAND, GDB = "library", "command", "gdb"
# Stops the process that is named on each line, reads its heap's roots, releases it, and prints the length of the stop.
LIBRARY = """
import sys
from gdbheap.heap import Heap
from gdbheap.targets.process import stopped
for line in sys.stdin:
    with stopped(int(line)) as process:
        Heap(process).stacks
    print(process.stopped_seconds, flush=True)
"""
NOUNS = ("info", "arenas", "", "holes", "check")


@dataclass
class Load:
    """The work of a target in some time: how often each second, and the longest time of one round in milliseconds."""

    rate: float = 0.0
    longest: float = 0.0


@dataclass
class Kind:
    """The rounds of one kind on one target."""

    count: int = 0
    failed: int = 0
    harms: Counter[str] = field(default_factory=Counter)


class Rounds:
    """Attaches and releases."""

    def __init__(self, watches: list[Watch], folder: Path, words: list[str]) -> None:
        """``words`` are additional options for the shell's commands."""
        self.watches, self.folder, self.words = watches, folder, words
        self.kinds = {(watch.target.pid, kind): Kind() for watch in watches for kind in (STOP, COMMAND, GDB)}
        self.library = subprocess.Popen(
            [sys.executable, "-c", LIBRARY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
        )
        self.said: Counter[str] = Counter()

    def close(self) -> None:
        """End the process that stops."""
        self.library.kill()
        self.library.communicate()

    def one(self, watch: Watch, rng: random.Random) -> Counter[str]:
        """Attach once and release; return the harm."""
        kinds = (STOP,) * 14 + (COMMAND,) * 5 + ((GDB,) if shutil.which("gdb") else ())
        kind = rng.choice(kinds)
        tally = self.kinds[watch.target.pid, kind]
        tally.count += 1
        tally.failed += not self._done(kind, watch.target.pid, rng)
        found = watch.judge()
        tally.harms += found
        # gdb attaches by itself, and every debugger's stop ends these calls: reported, but no harm by gdbheap.
        return Counter({what: n for what, n in found.items() if kind != GDB or not what.startswith("EINTR")})

    def _done(self, kind: str, pid: int, rng: random.Random) -> bool:
        if kind == STOP:
            assert self.library.stdin is not None and self.library.stdout is not None
            print(pid, file=self.library.stdin, flush=True)
            return bool(self.library.stdout.readline())
        words = [*filter(None, [rng.choice(NOUNS)]), str(pid), *self.words]
        command = [str(programs.GDBHEAP), *words]
        if kind == GDB:
            script = [str(programs.GDBHEAP), "--gdb-script"]
            path = subprocess.run(script, capture_output=True, text=True, check=True).stdout.strip()
            command = ["gdb", "-nx", "-batch", "-p", str(pid), "-x", path, "-ex", f"heap {rng.choice(NOUNS)}"]
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=self.folder, env=environment
        )
        # 5: a program without the subject of the noun.
        if done.returncode not in (0, 1, 5):
            self.said[done.stderr.strip()[-200:]] += 1
        return done.returncode in (0, 1, 5)

    def table(self, loads: dict[int, tuple[Load, Load]]) -> str:
        """Return a row for each target and kind."""
        rows: list[tuple[object, ...]] = []
        for watch in self.watches:
            alone, during = loads[watch.target.pid]
            for kind in (STOP, COMMAND, GDB):
                tally = self.kinds[watch.target.pid, kind]
                rows.append((watch.target.name, kind, tally.count, tally.failed, line_of(tally.harms)))
            rows.append((
                "", "work done", f"{during.rate / alone.rate:.2f} of alone", "",
                f"longest pause {during.longest:.0f} ms, alone {alone.longest:.0f} ms",
            ))  # fmt: skip
        return str(tabulate(rows, ("target", "by", "rounds", "failed", "harm")))


def begin(watch: Watch) -> tuple[float, dict[str, int]]:
    """Reset the longest times; return the time and how often each line was done."""
    watch.target.table.reset_longest()
    return time.monotonic(), {name: line.rounds for name, line in watch.target.lines().items()}


def load_since(watch: Watch, start: tuple[float, dict[str, int]]) -> Load:
    """Return the work of all lines together since ``start``, and the longest time of any."""
    lines, seconds = watch.target.lines(), time.monotonic() - start[0]
    done = sum(lines[name].rounds - rounds for name, rounds in start[1].items())
    return Load(done / seconds, max(line.longest for line in lines.values()) / 1e6)
