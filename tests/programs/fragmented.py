"""Leave holes: large buffers that grow by realloc, between small objects that stay; fragmented.py SEED BUFFERS."""

from __future__ import annotations

import ctypes
import random
import signal
import sys

M_MMAP_THRESHOLD = -3


def grow(generator: random.Random, steps: int) -> bytearray:
    """Return a buffer that moved a few times and left a hole each time."""
    buffer = bytearray()
    for _ in range(steps):
        buffer.extend(bytes(generator.randrange(20_000, 200_000)))
    return buffer


def fragment(generator: random.Random, count: int) -> list[object]:
    """Return the objects that stay: larger than pymalloc's 512 bytes, allocated between buffers that were dropped."""
    kept: list[object] = []
    buffers: list[bytearray] = []
    for _ in range(count):
        buffers.append(grow(generator, generator.randrange(1, 6)))
        kept.append(bytes(generator.randrange(600, 4000)))
        if len(buffers) > 8:
            buffers.pop(generator.randrange(len(buffers)))
    return kept


def main() -> None:
    """Allocate everything in the heap of the program break, drop the buffers, and pause."""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 32 << 20)
    kept = fragment(random.Random(int(sys.argv[1])), int(sys.argv[2]))
    signal.pause()
    del kept


if __name__ == "__main__":
    main()
