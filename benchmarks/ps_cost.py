"""Compare ``gdbheap ps`` with ps_mem: both read the same processes, alternately, each from its start to its end.

Both spend most of their time on the kernel's walk over all pages of each process (smaps_rollup), which is unavoidable;
gdbheap makes it on all cores at once. So the walk alone is measured as well, one process after the other: no program
that reads the same figures in that way can take less.

Usage: ps_cost.py [--processes=200] [--rounds=21]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

BIN = Path(sys.executable).parent
OURS, OURS_JSON, THEIRS, WALK = "gdbheap ps", "gdbheap ps --json", "ps_mem -S", "the kernel's walk alone"
COMMANDS = {
    OURS: [str(BIN / "gdbheap"), "ps"],
    OURS_JSON: [str(BIN / "gdbheap"), "ps", "--json"],
}
WORK = "import json, re, time\nprint('ready', flush=True)\ntime.sleep(3600)"


def walk() -> None:
    """Let the kernel sum up every process, one after the other."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            descriptor = os.open(f"/proc/{name}/smaps_rollup", os.O_RDONLY)
            with suppress(OSError):
                os.read(descriptor, 1 << 16)
            os.close(descriptor)


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Return elapsed seconds, and processor seconds including children."""
    before, begun = cpu(), time.perf_counter()
    act()
    return time.perf_counter() - begun, cpu() - before


def cpu() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def quiet(command: list[str]) -> None:
    """Run a command and discard its output."""
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def main() -> None:
    """Print a row for each program, with the ratio of ps_mem's median to its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--ps-mem", default="build/packages/bin/ps_mem", help="as scripts/packages.sh installs it")
    chosen = parser.parse_args()
    COMMANDS[THEIRS] = [chosen.ps_mem, "-S"]
    command = [sys.executable, "-I", "-c", WORK]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(chosen.processes)]
    try:
        for process in started:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        acts: dict[str, Callable[[], object]] = {name: partial(quiet, words) for name, words in COMMANDS.items()}
        acts[WALK] = walk
        rows: dict[str, list[tuple[float, float]]] = {name: [] for name in acts}
        for _ in range(chosen.rounds):
            for name, act in acts.items():
                rows[name].append(timed(act))
    finally:
        for process in started:
            process.kill()
            process.wait()
    medians = {name: [statistics.median(column) for column in zip(*times)] for name, times in rows.items()}
    print(f"{chosen.processes} processes, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    for name, (clock, used) in medians.items():
        ratios = [theirs[0] / ours[0] for theirs, ours in zip(rows[THEIRS], rows[name])]
        low, _, high = statistics.quantiles(ratios, n=4)
        ratio = f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"
        print(f"{name:24} {1000 * clock:7.0f} ms {1000 * used:7.0f} ms of processor time, ps_mem / it {ratio}")


if __name__ == "__main__":
    main()
