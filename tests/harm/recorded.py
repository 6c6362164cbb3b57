"""Programs whose calls are recorded, killed at random instants, or gdbheap while it collects: the log must have each
call.

The log is compared with the program's own table, in a shared mapped file.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support import programs
from support.call_tables import Table, by_thread, has_every_call, recorded
from tabulate import tabulate

from gdbheap.tracing.log import BY_LOCK, BY_TIME

# The recorder alone, whose files the slow reader reads call by call; the program under gdbheap trace; gdbheap itself.
ALONE, TRACED, COLLECTOR = WAYS = ("recorder alone", "traced", "gdbheap")
CALLS = 6000
# Calls of libc for a thread or a process, beside the program's own.
OTHERS = 150
PATIENCE = 60.0


@dataclass
class Tally:
    """The results of one way: runs, runs before the end, calls in the tables, harmed programs or missing calls."""

    count: int = 0
    running: int = 0
    calls: int = 0
    harmed: int = 0


class Kills:
    """Kills by SIGKILL, each of another program with one to four threads, and forks in half of them."""

    def __init__(self, folder: Path, ways: Sequence[str] = WAYS) -> None:
        """``ways``: the ways to test."""
        self.folder, self.number, self.ways = folder, 0, list(ways)
        self.tallies = {way: Tally() for way in ways}
        self.lengths: dict[str, float] = dict.fromkeys(WAYS, 0.2)

    def one(self, rng: random.Random) -> tuple[str, Counter[str]]:
        """Return the action and the harm."""
        way = rng.choice(self.ways)
        self.number += 1
        place = self.folder / f"kill{self.number}"
        place.mkdir(0o700)
        table = Table(rng.choice([1, 2, 4]), CALLS, rng.choice([0, 2]), place / "table")
        kill = {ALONE: self._alone, TRACED: self._traced, COLLECTOR: self._collector}[way]
        harm = kill(table, place, rng)
        tally = self.tallies[way]
        tally.count += 1
        tally.harmed += bool(harm)
        tally.calls += sum(len(row.calls) for row in table.rows())
        if not harm:
            shutil.rmtree(place)
        return f"{way}, {table.threads} threads, {table.forks} forks, {place}", harm

    def _wait(self, way: str, process: subprocess.Popen[bytes], rng: random.Random) -> None:
        """Wait until any instant of its life, by the lengths of those that ended before."""
        began = time.monotonic()
        limit = began + rng.random() * 1.05 * self.lengths[way]
        while time.monotonic() < limit and process.poll() is None:
            time.sleep(0.0005)
        is_over = process.poll() is not None
        self.tallies[way].running += not is_over
        # The length grows a little with each that was still running, and falls to that of one that ended.
        self.lengths[way] = time.monotonic() - began if is_over else self.lengths[way] * 1.02

    def _alone(self, table: Table, place: Path, rng: random.Random) -> Counter[str]:
        process = recorded(place / "calls", table.words(rng), order=rng.choice([BY_LOCK, BY_TIME]))
        self._wait(ALONE, process, rng)
        programs.end_group(process)
        logs, harm = by_thread(place / "calls"), Counter[str]()
        for row in table.rows():
            harm["calls missing"] += not has_every_call(row, logs.get((row.pid, row.tid), []))
        return +harm

    def _traced(self, table: Table, place: Path, rng: random.Random) -> Counter[str]:
        """Kill the program, and check the log of gdbheap."""
        command = [*_trace(place), "--json", "--", *table.words(rng)]
        tracing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self._wait(TRACED, tracing, rng)
        for child in _children(tracing.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        said, errors = tracing.communicate(timeout=PATIENCE)
        return _judge(table, said, errors)

    def _collector(self, table: Table, place: Path, rng: random.Random) -> Counter[str]:
        """Kill gdbheap; the program runs to its own end, with its own result, and --finish takes all calls."""
        said_so = place / "status"
        words = table.words(rng)
        shell = ["sh", "-c", '"$@"; echo $? > "$0.new"; mv "$0.new" "$0"', str(said_so), *words]
        command = [*_trace(place), "--", *shell]
        quiet = subprocess.DEVNULL
        tracing = subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)
        self._wait(COLLECTOR, tracing, rng)
        tracing.kill()
        tracing.wait(PATIENCE)
        if not (place / "calls.log.parts").exists():
            # Nothing was started yet, or everything was over.
            return Counter()
        deadline = time.monotonic() + PATIENCE
        while True:
            done = subprocess.run([*_trace(place), "--finish", "--json"], capture_output=True, timeout=PATIENCE)
            if b"still records" not in done.stderr or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        harm = Counter[str]()
        if list(table.rows()):
            harm["did not end well"] += not said_so.exists() or said_so.read_text() != "0\n"
            rows = [row.calls for row in table.rows()]
            plain = Table(table.threads, table.calls, table.forks, place / "plain")
            subprocess.run([*words[:-1], str(plain.path)], check=True)
            wanted = [row.calls for row in plain.rows()]
            harm["did something else"] += [[call[:2] for call in calls] for calls in rows] != [
                [call[:2] for call in calls] for calls in wanted
            ]
        return +(harm + _judge(table, done.stdout, done.stderr))

    def table(self) -> str:
        """Return a row for each way."""
        rows = [
            (way, tally.count, tally.running, tally.calls, tally.harmed or "none")
            for way, tally in self.tallies.items()
        ]
        return str(tabulate(rows, ("killed", "times", "before its end", "calls in tables", "harm"), intfmt=","))


def _trace(place: Path) -> list[str]:
    return [str(programs.GDBHEAP), "trace", "-o", str(place / "calls.log")]


def _judge(table: Table, said: bytes, errors: bytes) -> Counter[str]:
    """Check, for each process, that the log has all calls in the table, and at most one call more besides those of
    libc.
    """
    mine: Counter[int] = Counter()
    for row in table.rows():
        # A free is in the table before it is made.
        mine[row.pid] += len(row.calls)
    if not mine:
        return Counter()
    harm = Counter[str]()
    try:
        answer = json.loads(said)
    except ValueError:
        return Counter({f"no answer: {errors.decode()[-200:]}": 1})
    logged = {process["pid"]: process["calls"] for process in answer["rows"]}
    harm["calls lost"] += answer["lost"]
    for pid, count in mine.items():
        threads = sum(row.pid == pid for row in table.rows())
        least, found = count - threads, logged.get(pid, 0)
        harm["calls missing"] += found < least
        harm["calls too many"] += found > count + OTHERS
    return +harm


def _children(pid: int) -> list[int]:
    """Return all descendants."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            found += [child, *_children(child)]
    return found
