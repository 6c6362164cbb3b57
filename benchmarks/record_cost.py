"""Measure the cost of ``gdbheap record`` for the process that it samples: the process's CPU time for the same work, in
alternating rounds with a stopped and with a running recorder. The recorder's own CPU time is printed too.

The work is a Python program that makes and drops objects, some of them above pymalloc's limit, and prints the CPU time
of each round. The median of the pairs' ratios is printed with its 95 % confidence interval (by order statistics, so no
distribution of the ratios is assumed). The first row shows the noise of the machine: its recorder is always stopped.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GDBHEAP = Path(sys.executable).with_name("gdbheap")
WAYS = (
    (["--every=100ms"], False),
    (["--every=100ms"], True),
    (["--every=100ms", "--stop"], True),
    (["--every=10ms"], True),
)
WORK = """
import random, sys, time
generator = random.Random(1)
kept = [str(number) for number in range(int(sys.argv[1]))]
print("ready", flush=True)
for line in sys.stdin:
    before = time.process_time()
    held = {}
    for number in range(40_000):
        place = generator.randrange(20_000)
        held[place] = bytes(generator.randrange(1, 2000)) if number % 4 else [place] * 20
    print(time.process_time() - before, flush=True)
"""


def work(process: subprocess.Popen[str]) -> float:
    """Return the CPU seconds of one round."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def used(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU seconds of a process so far (proc(5), stat)."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def median_with_bounds(ratios: list[float]) -> tuple[float, float, float]:
    """Return the median and its 95 % confidence interval."""
    ordered, reach = sorted(ratios), 0.98 * math.sqrt(len(ratios))
    middle = (len(ordered) - 1) / 2
    low, high = max(0, math.floor(middle - reach)), min(len(ordered) - 1, math.ceil(middle + reach))
    return statistics.median(ordered), ordered[low], ordered[high]


def compared(
    process: subprocess.Popen[str], pairs: int, words: list[str], is_let_go: bool
) -> tuple[list[float], float]:
    """Return the ratio of each pair of rounds, and the share of one processor that the running recorder took."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "series.csv")
        command = [str(GDBHEAP), "record", str(process.pid), "-o", path, *words]
        recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while not (os.path.exists(path) and b",start," in Path(path).read_bytes()):
            work(process)
        ratios, before, elapsed = [], used(recorder), 0.0
        for _ in range(pairs):
            seconds = {}
            for runs in random.sample((False, True), 2):
                recorder.send_signal(signal.SIGCONT if runs and is_let_go else signal.SIGSTOP)
                begun = time.monotonic()
                seconds[runs] = work(process)
                elapsed += (time.monotonic() - begun) * runs
            ratios.append(seconds[True] / seconds[False])
        share = (used(recorder) - before) / elapsed
        recorder.send_signal(signal.SIGCONT)
        recorder.terminate()
        recorder.wait()
    return ratios, share


def main() -> None:
    """Print a line for each way of recording."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--objects", type=int, default=2_000_000, help="objects that stay")
    parser.add_argument("--pairs", type=int, default=1000, help="pairs of rounds for each way")
    chosen = parser.parse_args()
    command = [sys.executable, "-c", WORK, str(chosen.objects)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for words, is_let_go in WAYS:
            ratios, share = compared(process, chosen.pairs, words, is_let_go)
            name = " ".join(words) if is_let_go else "stopped"
            middle, low, high = median_with_bounds(ratios)
            used_by_it = f", recorder {100 * share:.1f} % of a processor" if is_let_go else ""
            print(f"{name:22} ratio {middle:.4f} ({low:.4f} to {high:.4f}){used_by_it}", flush=True)
        assert process.stdin is not None
        process.stdin.close()


if __name__ == "__main__":
    main()
