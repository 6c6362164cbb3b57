"""A process whose resident memory is three times what it uses, although nothing in it leaks.

A small upload service. It is an ordinary Python process: nothing prepares it for gdbheap. It imports only the
standard library, and runs on every Python from 3.9 on, with glibc.

The same happens to many services:

1. At its start it reads a large file into memory and drops it again. glibc uses mmap for such a large request. When the
   block is freed, glibc raises its limit for mmap to the size of the block (the mmap threshold, see mallopt(3)).
   From now on every buffer of up to 31 MiB comes from the heap, of which only the end can be returned to the system.
2. Sessions begin. The buffer of each grows by realloc as its data arrives. When it is complete, the service keeps a
   small preview of it for a long time. malloc places the preview right behind the buffer.
3. Two in three sessions end: their buffers are freed. The others get more data and outgrow their place: realloc moves
   them to the end of the heap. Either way a hole of some megabytes is left between two previews. It is too small for
   the next buffers, and pinned on both sides.

Usage: bloated.py [--size=300M] [--seed=N] [--seconds=3600]
It prints its process id, how much it holds, and "ready". Then it sleeps until a signal ends it, or for --seconds.
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
# The bytes of one read from the network.
PIECE = 256 << 10
# A preview must come from malloc: pymalloc serves requests of up to 512 bytes.
PREVIEW = 1000
# The sizes of complete buffers, and the size to which some grow later. No hole has room for a buffer of GROWN bytes.
SMALLEST, LARGEST, GROWN = 7 * MIB // 2, 6 * MIB, 7 * MIB
# One in this many sessions goes on. Their buffers then have half as many bytes as the holes.
GO_ON = 3


class Session:
    """An upload. It has a buffer until it ends, and a preview that stays."""

    __slots__ = ("buffer", "number", "preview")

    def __init__(self, number: int) -> None:
        self.number = number
        self.buffer: bytearray | None = bytearray()
        self.preview = b""

    def receive(self, network: memoryview, size: int) -> None:
        """Append pieces until the buffer has `size` bytes; it may move each time."""
        assert self.buffer is not None
        while len(self.buffer) < size:
            self.buffer += network[: size - len(self.buffer)]

    def keep_preview(self) -> None:
        """Keep the first bytes. They are allocated after the buffer, and so lie behind it in memory."""
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
    """Let some sessions grow beyond their place in memory, and end the others."""
    going_on = rng.sample(sessions, len(sessions) // GO_ON)
    for session in sessions:
        if session not in going_on:
            session.buffer = None
    for session in going_on:
        session.receive(network, GROWN)


def parse_size(text: str) -> int:
    """Parse a size such as "300M" or "2G". Return bytes."""
    unit = {"M": MIB, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(text.rstrip("MGmg")) * unit


def main() -> None:
    """Become the bloated process, print "ready", and sleep."""
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
