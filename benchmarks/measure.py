"""Start the targets of benchmarks and take times, without knowledge of what is measured.

A single time means little: machines differ, and are busy or idle. All times are taken next to the limit, the time to
read the same bytes once, in alternating order, and given as the median of their ratios to it.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "bench"
Act = Callable[[], object]


class Subject:
    """A process to measure on, started here: ``pid``, and ``said``, the JSON that it printed when it was ready."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self._line()
        if not line:
            raise SystemExit(f"{command} ended before it was ready, with status {self._process.wait()}")
        self.said: dict[str, int] = json.loads(line)
        self.pid = self.said["pid"]

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def longest_pause(self) -> float:
        """Return the longest stop since the last call, in seconds, as the process noticed it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def end(self) -> None:
        """Close the process's standard input, which ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def subject(command: Sequence[str]) -> Iterator[Subject]:
    """Run `command` for the length of the block."""
    started = Subject(command)
    try:
        yield started
    finally:
        started.end()


def compiled(source: str, compiler: str = "gcc") -> str:
    """Compile benchmarks/`source` and return the program's path."""
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / f"{Path(source).stem}-{Path(compiler).name}"
    subprocess.run([compiler, "-O2", "-o", str(program), str(HERE / source)], check=True)
    return str(program)


def preferred_python() -> str:
    """Return CPython 3.11, the version with the best support, if it is installed; otherwise the Python
    that runs this.
    """
    return shutil.which("python3.11") or sys.executable


@dataclass(frozen=True)
class Run:
    """One run of a command: elapsed time and peak resident memory, with the length of the target's stop."""

    seconds: float
    peak: int
    held: float


def run(command: Sequence[str], on: Subject) -> Run:
    """Run `command` to its end and discard its output. ``peak`` is the kernel's ru_maxrss.

    Linux counts the parent's memory before the exec as the child's, so call this before this process has grown.
    """
    on.longest_pause()
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}: {errors.read()}")
    return Run(seconds, usage.ru_maxrss << 10, on.longest_pause())


@dataclass
class Series:
    """The times of one measured thing, and the limit's times in the same rounds."""

    times: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Return the ratio of time to limit, round by round."""
        return [mine / limit for mine, limit in zip(self.times, self.limits)]

    @property
    def ratio(self) -> float:
        """Return the median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def spread(self) -> str:
        """Return the smallest and the largest ratio as text."""
        return f"{min(self.ratios):.2f} to {max(self.ratios):.2f}"


def seconds(function: Act) -> float:
    """Return the time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def alternate(limit: Act, things: Mapping[str, Act], rounds: int) -> dict[str, Series]:
    """Measure every function and the limit `rounds` times; the limit comes first in one round and last in the next."""
    series = {name: Series() for name in things}
    for number in range(rounds):
        for name, thing in things.items():
            if number % 2:
                mine, bound = seconds(thing), seconds(limit)
            else:
                bound, mine = seconds(limit), seconds(thing)
            series[name].times.append(mine)
            series[name].limits.append(bound)
    return series


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)
