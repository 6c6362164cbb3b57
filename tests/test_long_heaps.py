"""Heaps so long that several threads walk them: the same chunks as from a plain walk, whatever the buffers contain.

The heaps are files read as a core's memory. Their buffers have runs of bytes that look like chunks, across the places
where a thread may begin, and large areas without any.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.library import blocks

from gdbheap import _native
from gdbheap.allocators.glibc.arenas import Stretch
from gdbheap.machines.machine import X86_64
from gdbheap.targets.core import SegmentRow

BASE = 0x5550_0000_0000
LENGTH = 72 << 20
PREV_INUSE = 1


@dataclass
class Image:
    """A heap's bytes and its chunks as (address, size, state), the top chunk last."""

    memory: bytearray
    chunks: list[tuple[int, int, str]]

    def put(self, address: int, words: tuple[int, ...]) -> None:
        """Write words at an address."""
        struct.pack_into(f"<{len(words)}Q", self.memory, address - BASE, *words)


def size_of(rng: random.Random) -> int:
    """Return the size of a random chunk: mostly small, sometimes a large buffer."""
    kind = rng.random()
    largest = 400 if kind < 0.5 else 20_000 if kind < 0.99 else 6 << 20
    return max(32, rng.randrange(largest) // 16 * 16)


def make(rng: random.Random) -> Image:
    """Build random chunks, no two free ones side by side."""
    image = Image(bytearray(LENGTH), [])
    at, end, before_free = BASE, BASE + LENGTH, 0
    while end - at > 8 << 20:
        size = size_of(rng)
        free = not before_free and rng.random() < 0.4
        image.put(at, (before_free, size | (0 if before_free else PREV_INUSE)))
        if size > 4096:
            lure(image, at + 32, size - 48, rng)
        image.chunks.append((at, size, "free" if free else "used"))
        before_free = size if free else 0
        at += size
    image.put(at, (before_free, (end - at) | (0 if before_free else PREV_INUSE)))
    image.chunks.append((at, end - at, "top"))
    return image


def lure(image: Image, address: int, size: int, rng: random.Random) -> None:
    """Fill a buffer with bytes that look like chunks and end inside one, or leave it empty."""
    if rng.random() < 0.3:
        return
    end = address + size
    while address < end - 64:
        fake = rng.choice((32, 48, 64, 4096, size_of(rng)))
        image.put(address, (0, fake | PREV_INUSE))
        address += fake


def walk(image: Image, directory: Path) -> _native.Chunks:
    """Return the walk over the image; its top is the last chunk."""
    path = directory / "memory"
    path.write_bytes(image.memory)
    space = _native.Space.for_core(X86_64, [SegmentRow(BASE, BASE + LENGTH, 0, 0)], [str(path)])
    stretch = Stretch(0, BASE, BASE + LENGTH, image.chunks[-1][0], [0] * 10)
    return _native.walk_chunks(space, [stretch], [], True, False)[0]


def tallies(chunks: _native.Chunks) -> dict[str, tuple[int, int]]:
    """Return {state: (count, bytes)} without empty states."""
    (region,) = chunks.totals()
    assert (region.start, region.end) == (BASE, BASE + LENGTH)
    return {state: (row.count, row.bytes) for state, row in zip(_native.STATES, region.states) if row.count}


@pytest.mark.parametrize("round_", range(4))
def test_every_chunk(round_: int, rng: random.Random, tmp_path: Path) -> None:
    """Check state, start and size of each chunk, asked for from inside it."""
    image = make(rng)
    chunks = walk(image, tmp_path)
    assert chunks.damage == []
    assert blocks(chunks, [address + 16 for address, _, _ in image.chunks]) == image.chunks
    expected: dict[str, tuple[int, int]] = {}
    for _, size, state in image.chunks:
        count, total = expected.get(state, (0, 0))
        expected[state] = (count + 1, total + size)
    assert tallies(chunks) == expected


@pytest.mark.parametrize("round_", range(4))
def test_one_damaged_size(round_: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that every byte stays accounted for, that the damage is reported, and that everything before it is
    unchanged."""
    image = make(rng)
    place = rng.randrange(1, len(image.chunks) - 1)
    address, size, _ = image.chunks[place]
    wrong = rng.choice((0, 8, size + 8, rng.getrandbits(64) & ~7 | 8, LENGTH))
    image.put(address + 8, (wrong | PREV_INUSE,))
    chunks = walk(image, tmp_path)
    assert address in [row.address for row in chunks.damage]
    assert sum(count_bytes[1] for count_bytes in tallies(chunks).values()) == LENGTH
    before = image.chunks[: place - 1]
    assert blocks(chunks, [chunk + 16 for chunk, _, _ in before]) == before
