"""Measure the cost of reading a log of calls: `gdbheap stats` and the plan of a replay, as multiples of the time of
`zstd -dc` for the same stages, and in nanoseconds per call; also the memory of `gdbheap stats`.

The logs are those of a loop of malloc and free (`trace_cost.py`), with few blocks in use and with many, and of Python.
The three run alternately; the median of the ratios of elapsed times is printed, with the middle half.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from trace_cost import GDBHEAP, LOOP, compiled, middle

from gdbheap import _native
from gdbheap.host.headroom import room_for_copy
from gdbheap.tracing.call_stats import call_stats
from gdbheap.tracing.log import read_log

MANY = r"""
#include <stdlib.h>
int main(int argc, char **argv) {
    long live = atol(argv[1]), rounds = argc > 2 ? atol(argv[2]) / 2 : 0;
    void **all = calloc(live, sizeof *all);
    unsigned long state = 7;
    for (long round = 0; round < rounds; round++) {
        state = state * 6364136223846793005ul + 1442695040888963407ul;
        void **place = &all[(state >> 20) % live];
        free(*place);
        *place = malloc(16 + (state >> 40) % 64);
    }
    return 0;
}
"""
READ = "zstd -dc"
ALONE = """
import re, sys
from gdbheap.tracing.call_stats import call_stats
from gdbheap.host.headroom import room_for_copy
call_stats(sys.argv[1], None)
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def seconds(work: Callable[[], object]) -> float:
    """Return the time of the work."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def memory_of(log: Path) -> int:
    """Return the peak resident memory of a process that does the work of `gdbheap stats`.

    The kernel's figure of a child (wait4) includes its parent's memory at the start.
    """
    words = [sys.executable, "-c", ALONE, str(log)]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout) << 10


def main() -> None:
    """Print a line for each log and each work."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=20_000_000)
    parser.add_argument("--live", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = compiled(folder, "loop", LOOP, "-pthread"), compiled(folder, "many", MANY, "-fno-builtin")
        suite = "import json; [json.loads(json.dumps({str(n): [n] * 20 for n in range(200)})) for _ in range(100)]"
        python = ["env", "PYTHONMALLOC=malloc", sys.executable, "-c", suite]
        for words in ([few, "1", str(chosen.calls)], [many, str(chosen.live), str(chosen.calls)], python):
            log = folder / "calls.log"
            subprocess.run([str(GDBHEAP), "trace", "-o", str(log), "--", *words], check=True)
            _print(log, chosen.rounds)


def stages(log: Path) -> Path:
    """Return a file for zstd with all stages of a process."""
    found = log.with_suffix(".zst")
    data = memoryview(log.read_bytes())
    with found.open("wb") as packed:
        for at, size, _tick in read_log(str(log)).chosen(None).frames:
            packed.write(data[at : at + size])
    return found


def _print(log: Path, rounds: int) -> None:
    size, answer = memory_of(log), call_stats(str(log), None)
    frames, packed = read_log(str(log)).chosen(None).frames, stages(log)
    ways: dict[str, Callable[[], object]] = {
        READ: lambda: subprocess.run(["zstd", "-dc", str(packed)], check=True, stdout=subprocess.DEVNULL),
        "stats": lambda: _native.call_stats(str(log), frames, room_for_copy()),
        "plan": lambda: _native.plan_calls(str(log), frames, room_for_copy()),
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, work in ways.items():
            times[way].append(seconds(work))
    calls, most = answer.calls.all, answer.most_blocks.count
    print(f"{calls:,} calls, at most {most:,} blocks; stats has {size / 2**20:.0f} MiB resident")
    for way in ways:
        ratios = [other / read for other, read in zip(times[way], times[READ])]
        nanoseconds = min(times[way]) / calls * 1e9
        print(f"  {way}: {middle(ratios)} times the decompression, {nanoseconds:.1f} ns a call at best", flush=True)


if __name__ == "__main__":
    main()
