"""The longest stop of each command, by the target's own clock, on a machine with more busy programs than cores.

The target reads the clock without a rest; the longest time between two readings is the stop that it noticed. Without
gdbheap it also waits for its turn among the busy programs: that is measured first, and beside each command.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from support import programs
from tabulate import tabulate

from harm.table import Table
from harm.targets import wait_for

START = 900
BUSY = "while True: pass"
ALONE = 20.0
CLONE, LIMIT, DEFAULT_LIMIT = "--clone", "--max-stop", 5.0
CLONE_LIMIT = 1.0
STOPPED = re.compile(r"was stopped for ([\d,]+) ms")


@dataclass(frozen=True)
class Row:
    """One command; times in seconds, ``said`` is the stop by gdbheap's own clock (None: not reported)."""

    noun: str
    status: int
    seconds: float
    gap: float
    said: float | None


class Busy:
    """A target with this many MiB, among busy programs. ``words``: additional options for each command."""

    def __init__(self, folder: Path, others: int, mebibytes: int, words: list[str]) -> None:
        """Start the target and let it fill its memory, then start the other programs, and measure how long the target
        waits for the processor.
        """
        self.words, self.folder, self.rows = words, folder, list[Row]()
        command = [sys.executable, str(programs.SOURCES / "large_clock.py"), str(mebibytes), str(folder / "clock")]
        self.target = subprocess.Popen(command, env=programs.plain_environment())
        self.others: list[subprocess.Popen[bytes]] = []
        wait_for(lambda: (folder / "clock").exists(), "the target did not fill", START)
        time.sleep(1)
        self.table_of = Table(folder / "clock")
        self.others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(others)]
        self.alone = self._alone()

    def _alone(self) -> float:
        self.table_of.reset_longest()
        time.sleep(ALONE)
        return self._gap()

    def _gap(self) -> float:
        return self.table_of.lines()["clock"].longest / 1e9

    @property
    def limit(self) -> float | None:
        """Return the maximum stop with the given options; None if this gdbheap has no limit."""
        if CLONE in self.words:
            return CLONE_LIMIT
        given = [word.split("=")[1] for word in self.words if word.startswith(f"{LIMIT}=")]
        if given:
            return float(given[0]) or None
        about = subprocess.run([str(programs.GDBHEAP), "info", "--help"], capture_output=True, text=True, check=True)
        return DEFAULT_LIMIT if LIMIT in about.stdout else None

    def command(self, noun: str) -> None:
        """Run a command once, and wait until the target has continued."""
        self.table_of.reset_longest()
        started = time.monotonic()
        command = [str(programs.GDBHEAP), *filter(None, [noun]), str(self.target.pid), "--verbose", *self.words]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        seconds = time.monotonic() - started
        before = self.table_of.lines()["clock"].rounds
        wait_for(lambda: self.table_of.lines()["clock"].rounds > before, "the target does not go on")
        said = STOPPED.search(done.stderr)
        row = Row(noun or "heap", done.returncode, seconds, self._gap(), said and int(said[1].replace(",", "")) / 1000)
        self.rows.append(row)
        print(f"{row.noun}: {row.gap:.2f} s of {row.seconds:.1f} s, status {row.status}", flush=True)

    def too_long(self) -> list[Row]:
        """Return the commands that stopped it for longer than allowed, without the machine's own delays."""
        return [row for row in self.rows if self.limit is not None and row.gap - self.alone > self.limit]

    def table(self) -> str:
        """Return a row for each command."""
        rows = [
            (
                row.noun,
                row.status,
                f"{row.seconds:.1f}",
                f"{row.gap:.2f}",
                "" if row.said is None else f"{row.said:.2f}",
            )
            for row in self.rows
        ]
        heads = ("command", "status", "whole (s)", "longest gap (s)", "stop by gdbheap's clock (s)")
        limit = "nothing is promised" if self.limit is None else f"at most {self.limit:g} s are promised"
        return f"{tabulate(rows, heads)}\nwithout gdbheap the longest gap is {self.alone:.2f} s; {limit}"

    def close(self) -> None:
        """End all programs."""
        for process in (*self.others, self.target):
            process.kill()
            process.wait()
