"""Make thousands of copies of a busy program, and print the changes that the program noticed. Run by hand:

    python tests/clone_storm.py [COPIES] [MIB]

with the Python in which gdbheap is installed. It exits with 1 if the program noticed a change.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from support import busy

from gdbheap._native import Frozen


def milliseconds(seconds: list[float]) -> str:
    """Return the median, the 99th percentile and the maximum as text."""
    ordered = sorted(seconds)
    late = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return (
        f"median {1000 * statistics.median(ordered):.2f}, 99 % {1000 * late:.2f}, longest {1000 * ordered[-1]:.2f} ms"
    )


def main(copies: int, mebibytes: int) -> int:
    """Make the copies, and print their cost and the changes that were noticed."""
    with tempfile.TemporaryDirectory() as folder, busy.started("blocked", Path(folder), mebibytes) as target:
        stops, mended, uncollected = [], 0, 0
        for _ in range(copies):
            copy = Frozen(target.pid)
            copy.let_go()
            uncollected += not copy.end()
            mended += copy.mended
            stops.append(copy.seconds or 0.0)
            time.sleep(random.uniform(0, 0.003))
        print(f"{copies} copies of a program of {mebibytes} MiB with {len(busy.KINDS) + 6} threads")
        print(f"it stood still: {milliseconds(stops)}")
        print(f"system calls told to start again: {mended}; copies not collected: {uncollected}")
        print(f"it counted: {target.counts()}, EINTR {dict(zip(busy.KINDS, target.words()))}")
        target.unharmed()
        print("it noticed nothing")
    return int(uncollected > 0)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:3]]
    sys.exit(main(*given, *[1000, 64][len(given) :]))
