"""Cores with false headers and words."""

from __future__ import annotations

import random
import struct

from support import kernel


def evil_word(data: bytearray, segments: list[kernel.Segment], rng: random.Random) -> bytes:
    """Return eight bytes that may break a walk: extremes, small numbers, addresses, other words of the target."""
    segment = rng.choice(segments)
    place = segment.offset + 8 * rng.randrange(max(1, segment.file_size // 8))
    numbers = (0, 1, 7, 15, 16, 33, (1 << 64) - 1, 1 << 63, (1 << 63) - 16, 1 << 47, segment.start, segment.start + 16)
    if rng.random() < 0.3:
        return bytes(data[place : place + 8].ljust(8, b"\0"))
    if rng.random() < 0.2:
        return rng.randbytes(8)
    return struct.pack("<Q", rng.choice(numbers) + (rng.randrange(4096) if rng.random() < 0.1 else 0) & (1 << 64) - 1)


def headers(data: bytearray, segments: list[kernel.Segment], rng: random.Random) -> None:
    """Overwrite the program headers and notes, after the ELF header itself."""
    end = min(segment.offset for segment in segments)
    for _ in range(rng.choice((1, 5, 50))):
        place = rng.randrange(64, end - 8)
        data[place : place + 8] = evil_word(data, segments, rng)


def truncated(data: bytearray, segments: list[kernel.Segment], rng: random.Random) -> None:
    """Remove the end."""
    del data[rng.randrange(64, len(data)) :]
