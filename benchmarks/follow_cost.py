"""The cost of following a program: calls of realloc with `gdbheap catch` for a size that never comes, and with gdb's
conditional breakpoint for the same; system calls for memory with `gdbheap growth`, with and without stacks.

The program is C and prints the time of its calls, in alternating rounds with and without the command. Ratios and the
added time of a call are printed; for gdb's breakpoint fewer calls are made, because each takes a hundred
microseconds and more. The result is the median of the rounds; for realloc it is the quickest of many parts of all
rounds, because `catch` adds less to a call than a busy machine does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GDBHEAP = Path(sys.executable).with_name("gdbheap")
NEVER = 8_880_819
PARTS = 40
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
int main(void) {
    char kind;
    long count;
    void *volatile block = malloc(100);
    while (scanf(" %c %ld", &kind, &count) == 2) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (long i = 0; i < count; i++) {
            if (kind == 'r') block = realloc(block, 100 + i % 2 * 1000);
            else munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("%.12f\n", (to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9) / count);
        fflush(stdout);
    }
}
"""


class Program:
    """The C program; ``seconds`` lets it make calls."""

    def __init__(self, folder: Path) -> None:
        source, program = folder / "calls.c", folder / "calls"
        source.write_text(PROGRAM)
        subprocess.run(["cc", "-O1", "-o", str(program), str(source)], check=True)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([str(program)], stdin=pipe, stdout=pipe, text=True)
        self.pid = self._process.pid

    def seconds(self, kind: str, count: int) -> float:
        """Return the seconds of each of ``count`` calls. ``kind``: "r" for realloc, "m" for mmap with munmap."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{kind} {count}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def quickest(self, kind: str, count: int) -> float:
        """Return the seconds of a call of realloc in the quickest of PARTS parts."""
        parts = PARTS if kind == "r" else 1
        return min(self.seconds(kind, count // parts) for _ in range(parts))

    def end(self) -> None:
        """Let the program end."""
        self._process.kill()
        self._process.wait()


def beside(program: Program, command: list[str], kind: str, count: int) -> float:
    """Return the seconds of a call while ``command`` follows the program."""
    follower = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if "--perf" in command:
        wait_for_events(follower.pid)
    else:
        wait_until_traced(program.pid)
    found = program.quickest(kind, count)
    follower.terminate()
    follower.wait()
    return found


def wait_until_traced(pid: int) -> None:
    """Return once the process has been traced for a while, after the tracer's start."""
    while "TracerPid:\t0" in Path(f"/proc/{pid}/status").read_text():
        time.sleep(0.01)
    time.sleep(2)


def wait_for_events(pid: int) -> None:
    """Return once a command has received the kernel's events for a while."""
    folder = Path(f"/proc/{pid}/fd")
    while not any("perf_event" in os.readlink(entry) for entry in folder.iterdir() if entry.is_symlink()):
        time.sleep(0.01)
    time.sleep(2)


def gdb_line(pid: int) -> list[str]:
    """Return gdb's command with a conditional breakpoint on a register, as a user would leave it."""
    quiet = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off"]
    return [*quiet, "-p", str(pid), "-ex", f"break realloc if $rsi == {NEVER}", "-ex", "continue"]


def main() -> None:
    """Print a line for each way of following."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=4_000_000, help="calls of realloc in a round")
    parser.add_argument("--system-calls", type=int, default=2_000, help="pairs of mmap and munmap in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ways", default="", help="only those with this word, such as --perf")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder))
        pid = str(program.pid)
        catch = [str(GDBHEAP), "catch", pid, "realloc", f"--size={NEVER}"]
        growth = [str(GDBHEAP), "growth", pid]
        ways = [("catch", catch, "r", chosen.calls), ("growth", growth, "m", chosen.system_calls),
                ("growth --no-stacks", [*growth, "--no-stacks"], "m", chosen.system_calls),
                ("growth --perf", [*growth, "--perf"], "m", chosen.system_calls)]  # fmt: skip
        ways.append(("growth --perf --no-stacks", [*growth, "--perf", "--no-stacks"], "m", chosen.system_calls))
        if shutil.which("gdb"):
            ways.append(("gdb's condition", gdb_line(program.pid), "r", chosen.calls // 4000))
        for name, command, kind, count in ways:
            if chosen.ways not in name:
                continue
            alone, followed = [], []
            for _ in range(chosen.rounds):
                alone.append(program.quickest(kind, count))
                followed.append(beside(program, command, kind, count))
            typical = min if kind == "r" else statistics.median
            before, after = typical(alone), typical(followed)
            low, high = min(followed) - max(alone), max(followed) - min(alone)
            times = f"{1e9 * before:,.1f} ns a call alone, {1e9 * after:,.1f} beside it: {after / before:.2f} times"
            print(f"{name}: {times}, {1e9 * (after - before):,.1f} ns more ({1e9 * low:,.1f} to {1e9 * high:,.1f})")
        program.end()


if __name__ == "__main__":
    os.environ.pop("DEBUGINFOD_URLS", None)
    main()
