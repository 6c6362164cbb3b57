"""What ``gdbheap record`` costs the process that it looks at: its own CPU time for the same work, in turn with and
without a recorder, and the recorder's CPU time beside it.

The work is a Python program that makes and drops objects, some of them above pymalloc's limit, and says after each
round how much CPU time that took. Ratios of medians are printed; a loaded machine widens them."""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

GDBHEAP = Path(sys.executable).with_name("gdbheap")
WORK = """
import random, sys, time
generator = random.Random(1)
kept = [str(number) for number in range(int(sys.argv[1]))]
print("ready", flush=True)
for line in sys.stdin:
    before = time.process_time()
    held = {}
    for number in range(150_000):
        place = generator.randrange(20_000)
        held[place] = bytes(generator.randrange(1, 2000)) if number % 4 else [place] * 20
    print(time.process_time() - before, flush=True)
"""


def work(process: subprocess.Popen[str]) -> float:
    """Return the CPU seconds that a round took it."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def recorded(process: subprocess.Popen[str], rounds: int, words: list[str]) -> tuple[list[float], float]:
    """Return the seconds of some rounds with a recorder beside it, and its share of a processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "series.csv")
        command = [str(GDBHEAP), "record", str(process.pid), "-o", path, *words]
        recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while not (os.path.exists(path) and b",start," in Path(path).read_bytes()):
            work(process)
        begun = os.times().elapsed
        seconds = [work(process) for _ in range(rounds)]
        elapsed = os.times().elapsed - begun
        recorder.terminate()
        recorder.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, used / elapsed


def main() -> None:
    """Print a line for each way of recording."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=2_000_000, help="objects that stay")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=12, help="rounds of work in each turn")
    chosen = parser.parse_args()
    command = [sys.executable, "-c", WORK, str(chosen.objects)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for words in (["--every=100ms"], ["--every=100ms", "--stop"], ["--every=10ms"]):
            alone: list[float] = []
            beside: list[float] = []
            shares: list[float] = []
            for _ in range(chosen.turns):
                alone += [work(process) for _ in range(chosen.rounds)]
                seconds, share = recorded(process, chosen.rounds, words)
                beside += seconds
                shares.append(share)
            ratio = statistics.median(beside) / statistics.median(alone)
            print(
                f"{' '.join(words):24} ratio {ratio:.4f} (least {min(beside) / min(alone):.4f}),"
                f" recorder {100 * statistics.median(shares):.1f} % of a processor with its start,"
                f" rounds of {1000 * statistics.median(alone):.0f} ms",
                flush=True,
            )
        assert process.stdin is not None
        process.stdin.close()


if __name__ == "__main__":
    main()
