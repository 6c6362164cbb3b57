"""Watch for a long time: ``soak.py [--minutes=60] [--processes=200] [--churn=50] [--idle=0] [--groups=20]``.

A watch observes ``--processes`` programs by name. Meanwhile ``--churn`` further programs of the same name start and end
each second, and ``--groups`` control groups are filled within two seconds each, so that the kernel kills programs in
them. About every 20 seconds soak.py prints the processor time and the memory of the watch. With STORE=yes in the
environment, the result becomes a row of docs/runs.md. soak.py fails if

- the watch used more than 0.1 % of a processor for each of the ``--processes``,
- its memory grew by more than 8 MiB,
- it printed more than 60 lines, one for each group, and, on average, one further line a minute,
- fewer than ``--groups`` programs were killed, or one of them had neither a snapshot nor a line with the reason,
- the watch found a new process later than after 5 seconds, or after 1 second in a control group. The time in which the
  watch or the process was ready to run, but other programs had the processors, does not count for the 5 seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.control_groups import limited_group
from support.programs import GDBHEAP, PATIENCE, SOURCES, c_program, interpreters

RUNS = Path(__file__).resolve().parent.parent / "scripts" / "runs.py"
TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
SETTLED, SLACK = 60, 8 << 20
SHARE = 0.001


def cost(pid: int) -> tuple[float, int]:
    """Return the processor seconds that a process and its ended children took, and its RSS."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11:15])) / TICKS, int(fields[21]) * PAGE


def waited(pid: int) -> float:
    """Return for how many seconds the first thread of a process was ready to run, but had no processor; 0 if the kernel
    does not count them."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0


@contextmanager
def crowd(program: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield ``count`` processes of a program, which rest."""
    processes = [subprocess.Popen([str(program)], stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


class Reader:
    """The events of a watch with --json, read in a thread: each with the time when it came."""

    def __init__(self, watch: subprocess.Popen[str]) -> None:
        """Begin to read."""
        self.events: list[tuple[float, dict[str, Any]]] = []
        self.came = threading.Condition()
        self._watch = watch
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._watch.stdout is not None
        for line in self._watch.stdout:
            with self.came:
                self.events.append((time.monotonic(), json.loads(line)))
                self.came.notify_all()

    def wait(self, kind: str, pid: int) -> tuple[float, dict[str, Any]] | None:
        """Return the time when an event of a process came, and the event; None if none comes."""

        def found() -> tuple[float, dict[str, Any]] | None:
            return next((one for one in self.events if (one[1]["event"], one[1]["pid"]) == (kind, pid)), None)

        with self.came:
            self.came.wait_for(lambda: found() is not None, PATIENCE)
        return found()


@contextmanager
def watching(*words: str) -> Iterator[tuple[subprocess.Popen[str], Reader]]:
    """Yield a watch and its events."""
    command = [str(GDBHEAP), "watch", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        try:
            yield watch, Reader(watch)
        finally:
            watch.send_signal(signal.SIGTERM)
            watch.wait(PATIENCE)


def group_is_killed(rng: random.Random, folder: Path) -> tuple[bool, float]:
    """Watch a group, start a program in it that fills it in two seconds.

    Return whether the kill left a snapshot or a line with the reason why not, and after how many seconds the watch
    found the program.
    """
    with limited_group(rng.randrange(96, 256) << 20, rng) as group:
        words = (f"--cgroup={group.folder}", "--at-oom", "--count=all", "--again=0", f"--output={folder}")
        with watching(*words) as (_watch, reader):
            with reader.came:
                reader.came.wait_for(lambda: bool(reader.events), PATIENCE)
            program = [interpreters()[0].executable, "-I", str(SOURCES / "swelling.py")]
            line = [*program, str(group.limit / 2), str(4 * group.limit)]
            with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdin is not None and process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                group.take_in(process.pid)
                began = time.monotonic()
                process.stdin.write("\n")
                process.stdin.flush()
                status = process.wait(PATIENCE)
                seen = reader.wait("began", process.pid)
                reader.wait("ended", process.pid)
            acted = [event for _, event in reader.events if event["event"] == "acted" and event["pid"] == process.pid]
            told = any(event["files"] or event["errors"] for event in acted)
    return status == -signal.SIGKILL and told, PATIENCE if seen is None else seen[0] - began


def new_process_is_seen(program: Path, reader: Reader, watch: int) -> tuple[float, float]:
    """Start a process. Return after how many seconds the watch found it, and for how many of these the watch or the
    process had no processor."""
    before = waited(watch)
    with crowd(program, 1) as (process,):
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
        began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(fields[19]) / TICKS
        seen = reader.wait("began", process.pid)
        without = waited(watch) - before + waited(process.pid)
    return (PATIENCE if seen is None else seen[1]["time"] - began), without


def churn(program: Path, rate: int, until: float, done: threading.Event) -> int:
    """Start and end ``rate`` processes a second until ``until``; return their number."""
    count = 0
    while time.monotonic() < until and not done.is_set():
        with crowd(program, rate):
            count += rate
            done.wait(1.0)
    return count


def main() -> None:
    """Run the watch, and print its cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in (("minutes", 60.0), ("processes", 200), ("churn", 50), ("idle", 0), ("groups", 20)):
        parser.add_argument(f"--{name}", type=type(usual), default=usual)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    wanted = parser.parse_args()
    rng, failures = random.Random(wanted.seed), list[str]()
    print(f"seed {wanted.seed}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        watched, idle = folder / "soaked", folder / "idler"
        for copy in (watched, idle):
            shutil.copy(c_program("idle")[0], copy)
        with crowd(idle, wanted.idle), crowd(watched, wanted.processes):
            result = soak(wanted, rng, watched, folder, failures)
    for failure in failures:
        print(f"FAILED: {failure}")
    if os.environ.get("STORE") == "yes":
        run = f"tests/soak.py, {wanted.processes} processes, {wanted.churn} new ones a second, {wanted.idle} others"
        end = f"; FAILED: {', '.join(failures)}" if failures else ""
        subprocess.run([sys.executable, RUNS, run, f"{wanted.minutes:g} minutes: {result}{end}"], check=True)
    sys.exit(bool(failures))


def soak(wanted: argparse.Namespace, rng: random.Random, program: Path, folder: Path, failures: list[str]) -> str:
    """Watch for the given time. Return the figures, and add the faults to ``failures``."""
    words = (f"--name=^{program.name}$", "--rss=1T", f"--output={folder}")
    errors = folder / "text"
    with errors.open("w") as said, watching(*words) as (watch, reader):
        text_began = time.monotonic()
        text = subprocess.Popen([str(GDBHEAP), "watch", *words], stderr=said)
        began, done = time.monotonic(), threading.Event()
        until = began + 60 * wanted.minutes
        worker = threading.Thread(target=churn, args=(program, wanted.churn, until, done))
        done.wait(min(SETTLED, 6 * wanted.minutes))
        worker.start()
        start, (used, memory) = time.monotonic(), cost(watch.pid)
        slowest, slowest_in_all, kills, told, slowest_group = 0.0, 0.0, 0, 0, 0.0
        while time.monotonic() < until:
            in_all, without = new_process_is_seen(program, reader, watch.pid)
            slowest, slowest_in_all = max(slowest, in_all - without), max(slowest_in_all, in_all)
            if kills < wanted.groups:
                caught, seconds = group_is_killed(rng, folder)
                kills, told, slowest_group = kills + 1, told + caught, max(slowest_group, seconds)
            passed, (now, rss) = time.monotonic() - start, cost(watch.pid)
            share = (now - used) / passed
            figures = f"{passed:.0f} s: {100 * share:.2f} % of a processor, {rss >> 20} MiB"
            seen = f"new processes seen within {slowest:.1f} s ({slowest_in_all:.1f} s with waits for a processor)"
            seen += f", in groups {slowest_group:.1f} s"
            figures = f"{figures}; {seen}; {told} of {kills} kills told"
            print(figures, flush=True)
            done.wait(min(20.0 if kills == wanted.groups else 5.0, max(0.0, until - time.monotonic())))
        worker.join()
        text.send_signal(signal.SIGTERM)
        text.wait(PATIENCE)
        text_ran = time.monotonic() - text_began
        if share > SHARE * wanted.processes:
            failures.append(f"the watch took {100 * share:.2f} % of a processor")
        if rss > memory + SLACK:
            failures.append(f"its memory grew from {memory >> 20} to {rss >> 20} MiB")
        if slowest > 5 or slowest_group > 1 or told < wanted.groups:
            failures.append(f"processes were seen too late, or killed without a word ({told} of {wanted.groups} told)")
    lines = errors.read_text().count("\n")
    counts = f"{lines} lines of text, {len(reader.events)} events"
    print(counts)
    # The first 40 lines, and those at the beginning and the end. A kill has its own line.
    if lines > 60 + wanted.groups + text_ran / 60:
        failures.append(f"{lines} lines")
    return f"{figures}; {counts}"


if __name__ == "__main__":
    main()
