"""A large Python process to measure on: about 2 GB, 18 million pymalloc blocks of mixed objects, some freed again.

Usage: target_python.py [BLOCKS] [SEED]. Prints one line of JSON when it is ready: {"pid", "blocks", "seed"}. Then it
reads the clock once a millisecond (a beat). For each line on standard input it prints the longest pause between two
beats since the last line, in seconds: the length of a stop, as seen from inside. It ends when its standard input does.
"""

from __future__ import annotations

import gc
import json
import os
import random
import select
import sys
import time
from typing import NamedTuple

BATCH = 20_000
# One record of GONE is deleted again, so that pools are partly used.
GONE = 12


class Slotted:
    """An instance without a dict."""

    __slots__ = ("key", "value")

    def __init__(self, key: int, value: float) -> None:
        self.key = key
        self.value = value


class Plain:
    """An ordinary instance."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size


class Point(NamedTuple):
    """A tuple subclass."""

    x: float
    y: float


def record(number: int, rng: random.Random) -> object:
    """Return one of ten kinds of values; each has a few blocks."""
    kind = number % 10
    if kind == 0:
        return [number + step for step in range(6)]
    if kind == 1:
        return {"number": number, "weight": number * 0.5}
    if kind == 2:
        return Slotted(number, number * 1.5)
    if kind == 3:
        return Plain("x" * rng.randrange(440), number)
    if kind == 4:
        return Point(number + 0.5, number - 0.5)
    if kind == 5:
        return (str(number), "y" * rng.randrange(440), None)
    if kind == 6:
        return bytes(rng.randrange(470) if rng.random() < 0.8 else rng.randrange(513, 4000))
    if kind == 7:
        return {number, number + 1, number + 2}
    if kind == 8:
        return [str(number + step) * 32 for step in range(4)]
    return bytearray(rng.randrange(460))


def fill(blocks: int, rng: random.Random) -> list[list[object]]:
    """Return batches of records until `blocks` pymalloc blocks are in use; every twelfth record is deleted again."""
    batches: list[list[object]] = []
    while sys.getallocatedblocks() < blocks:
        start = len(batches) * BATCH
        batches.append([record(number, rng) for number in range(start, start + BATCH)])
        for _ in range(BATCH // GONE):
            rng.choice(batches)[rng.randrange(BATCH)] = None
    return batches


def beat() -> None:
    """Beat until standard input ends; answer each line with the longest pause."""
    longest, last = 0.0, time.monotonic()
    while True:
        ready = select.select([sys.stdin], [], [], 0.001)[0]
        now = time.monotonic()
        longest, last = max(longest, now - last), now
        if ready:
            if not sys.stdin.readline():
                return
            print(f"{longest:.6f}", flush=True)
            longest, last = 0.0, time.monotonic()


def main() -> None:
    """Fill the memory, print the line, and beat until the input ends."""
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 18_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32)
    gc.disable()
    batches = fill(blocks, random.Random(seed))
    print(json.dumps({"pid": os.getpid(), "blocks": sys.getallocatedblocks(), "seed": seed}), flush=True)
    beat()
    # Freeing millions of objects one by one would take longer than measuring them.
    assert batches
    os._exit(0)


if __name__ == "__main__":
    main()
