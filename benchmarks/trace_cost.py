"""Measure the cost of the recorder of ``gdbheap trace``: CPU time of the same work without it, with a preloaded library
that only passes calls on, and with the recorder, alternately; and the bytes of a call in the log.

The work is a loop of malloc and free in one thread and in two, and three programs if they are installed: sqlite3, git
and Python. Rows with recorded stacks, sampled by bytes or of every call, follow. The median of each pair's ratio or
difference is printed, with the middle half. heaptrack has a row if it is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from gdbheap.tracing.recorder_files import ENVIRONMENT, OF_PYTHON, recorder_library
from gdbheap.tracing.stack_settings import EVERY_CALL, STACKS_ENVIRONMENT, USUAL_MEAN, stack_settings

GDBHEAP = Path(sys.executable).with_name("gdbheap")
CALLS = 10_000_000
PYTHON = "python"
ALONE, PASSED_ON, RECORDED, PYMALLOC = "alone", "passed on", "recorded", "with --pymalloc"
SAMPLED, EACH = "with stacks, sampled", "with each call's stack"
LOOP = r"""
#include <pthread.h>
#include <stdlib.h>
static long rounds;
static void *work(void *seed) {
    unsigned state = (unsigned)(long)seed;
    void *live[4096] = {0};
    for (long number = 0; number < rounds; number++) {
        state = state * 1664525u + 1013904223u;
        unsigned place = state >> 8 & 4095;
        free(live[place]);
        state = state * 1664525u + 1013904223u;
        live[place] = malloc(16 + (state >> 8) % 8176);
    }
    for (int place = 0; place < 4096; place++) free(live[place]);
    return NULL;
}
int main(int argc, char **argv) {
    long threads = argc > 1 ? atol(argv[1]) : 1;
    pthread_t all[64];
    rounds = atol(argv[2]) / 2 / threads;
    if (threads == 1) work((void *)7);
    for (long number = 0; threads > 1 && number < threads; number++)
        pthread_create(&all[number], NULL, work, (void *)(number + 1));
    for (long number = 0; threads > 1 && number < threads; number++) pthread_join(all[number], NULL);
    return 0;
}
"""
PASSING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static void *(*real_malloc)(size_t), *(*real_realloc)(void *, size_t), (*real_free)(void *);
static __attribute__((constructor)) void find(void) {
    real_malloc = dlsym(RTLD_NEXT, "malloc");
    real_realloc = dlsym(RTLD_NEXT, "realloc");
    real_free = dlsym(RTLD_NEXT, "free");
}
void *malloc(size_t size) { if (!real_malloc) find(); return real_malloc(size); }
void *realloc(void *old, size_t size) { if (!real_realloc) find(); return real_realloc(old, size); }
void free(void *address) { if (!real_free) find(); real_free(address); }
"""
Timed = Callable[[], float]


def compiled(folder: Path, name: str, source: str, *flags: str) -> str:
    """Return the path of a compiled C source."""
    (folder / f"{name}.c").write_text(source)
    subprocess.run(["gcc", "-O2", *flags, "-o", str(folder / name), str(folder / f"{name}.c"), "-ldl"], check=True)
    return str(folder / name)


def cpu_of(words: Sequence[str], **environment: str) -> float:
    """Return the CPU seconds of a command and of all processes that it started."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, cwd="/tmp")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def recorded(words: Sequence[str], folder: Path, stacks: int = 0, pymalloc: bool = False) -> float:
    """Return the CPU seconds of a command with the recorder, whose files are removed. ``stacks``: the bytes between two
    recorded stacks, 0 for none."""
    more = {STACKS_ENVIRONMENT: stack_settings(stacks)} if stacks else {}
    if pymalloc:
        more[OF_PYTHON] = "1"
    with tempfile.TemporaryDirectory(dir=folder) as calls:
        return cpu_of(words, LD_PRELOAD=recorder_library(), **{ENVIRONMENT: calls}, **more)


def programs(folder: Path) -> dict[str, list[str]]:
    """Return commands of real programs that are installed."""
    found: dict[str, list[str]] = {}
    if sqlite := shutil.which("sqlite3"):
        rows = "".join(f"insert into t values({n}, 'row {n * 7919 % 10007}', {n * 31 % 997});\n" for n in range(60_000))
        (folder / "script.sql").write_text(
            f"create table t(a, b, c);\nbegin;\n{rows}commit;\ncreate index i on t(b);\n"
            "select c, count(*) from t group by c;\n"
        )
        found["sqlite3"] = [sqlite, ":memory:", f".read {folder / 'script.sql'}"]
    if git := shutil.which("git"):
        here = str(Path(__file__).resolve().parent.parent)
        found["git log"] = [git, "-C", here, "log", "--stat", "-n", "150", "--no-color"]
    suite = (
        "import json, re; [re.compile('(a|b%d)+c*' % n).match('abc' * 9) for n in range(3000)]; "
        "[json.loads(json.dumps({str(n): [n] * 20 for n in range(200)})) for _ in range(150)]"
    )
    found[PYTHON] = [sys.executable, "-c", suite]
    return found


def ways_of(words: Sequence[str], passing: str, folder: Path) -> dict[str, Timed]:
    """Return the ways of running a command that are compared."""
    return {
        ALONE: partial(cpu_of, words),
        PASSED_ON: partial(cpu_of, words, LD_PRELOAD=passing),
        RECORDED: partial(recorded, words, folder),
        SAMPLED: partial(recorded, words, folder, USUAL_MEAN),
    }


def alternate(ways: dict[str, Timed], rounds: int) -> dict[str, list[float]]:
    """Return the times of each way in each round. The first way is the one with which the others are compared."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(way())
    return times


def middle(values: Sequence[float]) -> str:
    """Return the median and the middle half."""
    low, median, high = statistics.quantiles(values, n=4)
    return f"{median:.2f} ({low:.2f} to {high:.2f})"


def bytes_a_call(words: Sequence[str], folder: Path) -> str:
    """Return how many calls a command makes, and the bytes of a call in the log."""
    log = folder / "calls.log"
    done = subprocess.run(
        [str(GDBHEAP), "trace", "-o", str(log), "--json", "--", "sh", "-c", 'exec "$@" > /dev/null', "sh", *words],
        check=True, capture_output=True, text=True, cwd="/tmp",
    )  # fmt: skip
    answer = json.loads(done.stdout)
    return f"{answer['calls']:,} calls, {answer['size'] / answer['calls']:.2f} bytes a call"


def main() -> None:
    """Print a line for each program and each way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        passing = compiled(folder, "passing.so", PASSING, "-shared", "-fPIC", "-fno-builtin")
        loop = compiled(folder, "loop", LOOP, "-pthread")
        for threads in (1, 2):
            _print_loop(threads, alternate(ways_of([loop, str(threads), str(CALLS)], passing, folder), chosen.rounds))
        for program, words in programs(folder).items():
            ways = ways_of(words, passing, folder)
            if program == PYTHON:
                ways[PYMALLOC] = partial(recorded, words, folder, pymalloc=True)
            ways[EACH] = partial(recorded, words, folder, EVERY_CALL)
            if heaptrack := shutil.which("heaptrack"):
                ways["heaptrack"] = partial(cpu_of, [heaptrack, "-o", str(folder / "heaptrack"), *words])
            for way, times in (found := alternate(ways, chosen.rounds)).items():
                if way != ALONE:
                    ratios = [beside / alone for alone, beside in zip(found[ALONE], times)]
                    print(f"{program}, {way}: {middle(ratios)} times the CPU", flush=True)
            print(f"{program}: {bytes_a_call(words, folder)}", flush=True)


def _print_loop(threads: int, times: dict[str, list[float]]) -> None:
    for way in (PASSED_ON, RECORDED, SAMPLED):
        more = [(beside - alone) / CALLS * 1e9 for alone, beside in zip(times[ALONE], times[way])]
        least = (min(times[way]) - min(times[ALONE])) / CALLS * 1e9
        print(f"loop, {threads} threads, {way}: {middle(more)} ns more a call; of the least {least:.1f}", flush=True)


if __name__ == "__main__":
    main()
