"""A process whose resident memory is three times what it uses, although nothing in it leaks.

An upload service in small. It is an ordinary Python process: nothing prepares it for gdbheap, it imports only the
standard library, and runs on every Python from 3.9 up on glibc.

What happens to it happens to many services:

1. At start it reads a large file into memory and drops it again. glibc serves a request that large with mmap, and when
   it is freed takes its size as the new limit below which it does not (the dynamic mmap threshold, see mallopt(3)).
   From now on every buffer of up to 31 MiB comes from the heap, where only the end can be given back to the system.
2. Sessions begin. The buffer of each grows by realloc as its data arrives; when it is complete, the service keeps a
   preview of it, a small thing that lives long, and that malloc places right behind the buffer.
3. Two sessions of three end: their buffers are freed. The others get more data and outgrow their place: realloc moves
   them to the end of the heap. Either way a hole of megabytes stays behind, between two previews, too small for what
   comes next and pinned on both sides.

Usage: bloated.py [--size=300M] [--seed=N] [--seconds=3600]
It prints its process id, what it holds, and "ready"; then it sleeps until it is ended by a signal, or for --seconds.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import signal

MIB = 1 << 20
# The largest request that still raises the threshold (DEFAULT_MMAP_THRESHOLD_MAX is 32 MiB on 64-bit systems).
LARGE_FILE = 31 * MIB
# What one read from the network brings.
PIECE = 256 << 10
# A preview must come from malloc: pymalloc serves what is up to 512 bytes.
PREVIEW = 1000
# Buffers of sessions, when they first are complete. No hole that one leaves is large enough for GROWN.
SMALLEST, LARGEST, GROWN = 7 * MIB // 2, 6 * MIB, 7 * MIB
# One session of so many goes on: what those hold is then half of what the holes measure.
GO_ON = 3


class Session:
    """One upload: its buffer, until it ends, and its preview, which stays."""

    __slots__ = ("buffer", "number", "preview")

    def __init__(self, number: int) -> None:
        self.number = number
        self.buffer: bytearray | None = bytearray()
        self.preview = b""

    def receive(self, network: memoryview, size: int) -> None:
        """Append pieces until the buffer is `size` bytes; each may make it move."""
        assert self.buffer is not None
        while len(self.buffer) < size:
            self.buffer += network[: size - len(self.buffer)]

    def keep_preview(self) -> None:
        """Keep the first bytes, after the buffer in time and so behind it in memory."""
        assert self.buffer is not None
        self.preview = bytes(self.buffer[:PREVIEW])


def raise_the_threshold() -> None:
    """Read a large file and drop it: glibc now serves everything smaller from the heap."""
    bytearray(LARGE_FILE)


def first_uploads(size: int, network: memoryview, rng: random.Random) -> list[Session]:
    """Return sessions whose buffers are complete, two thirds of `size` bytes in all."""
    sessions: list[Session] = []
    left = size * 2 // 3
    while left > 0:
        session = Session(len(sessions))
        session.receive(network, rng.randrange(SMALLEST, LARGEST))
        session.keep_preview()
        sessions.append(session)
        left -= len(session.buffer or b"")
    return sessions


def later_uploads(sessions: list[Session], network: memoryview, rng: random.Random) -> None:
    """Let some sessions go on, beyond the place that they have, and end the others."""
    going_on = rng.sample(sessions, len(sessions) // GO_ON)
    for session in sessions:
        if session not in going_on:
            session.buffer = None
    for session in going_on:
        session.receive(network, GROWN)


def parse_size(text: str) -> int:
    """Return bytes for "300M" or "2G"."""
    unit = {"M": MIB, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(text.rstrip("MGmg")) * unit


def main() -> None:
    """Become the bloated process, say so, and sleep."""
    parser = argparse.ArgumentParser(description="A process whose resident memory is three times what it uses.")
    parser.add_argument("--size", type=parse_size, default=300 * MIB, help="about how much to be resident (300M)")
    parser.add_argument("--seed", type=int, default=None, help="of the sizes of the buffers (random)")
    parser.add_argument("--seconds", type=int, default=3600, help="how long to live at most (3600)")
    options = parser.parse_args()
    signal.alarm(options.seconds)
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    rng = random.Random(seed)
    network = memoryview(mmap.mmap(-1, PIECE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    raise_the_threshold()
    cache = [bytes(PREVIEW) for _ in range(2000)]  # fills what is free in the heap, as a service that is warm has done
    sessions = first_uploads(options.size, network, rng)
    later_uploads(sessions, network, rng)

    held = sum(len(session.buffer or b"") for session in sessions)
    print(f"pid {os.getpid()}")
    print(f"{len(sessions)} sessions hold {held >> 20} MiB, {len(cache)} cached previews, seed {seed}")
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
