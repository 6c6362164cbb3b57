"""The apparent contents of an unknown block, against a plain model of the same rules, on random bytes."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from gdbheap import _native
from gdbheap.machines.machine import X86_64
from gdbheap.targets.core import SegmentRow

BASE, SIZE = 0x10000, 1 << 16
MAPPED = [(BASE, BASE + SIZE), (0x7F0000000000, 0x7F0000100000)]
LOOK = 64


def pointer(rng: random.Random) -> int:
    """Return an address at or near an end of a mapping, or inside one."""
    start, end = rng.choice(MAPPED)
    return rng.choice([start, end - 1, rng.randrange(start, end), start - 1, end])


def content(rng: random.Random) -> bytes:
    """Return 64 bytes of a kind, sometimes ended early by zeros."""
    kinds = [
        bytes(LOOK),
        rng.randbytes(LOOK),
        bytes(rng.choice([*range(32, 127), 9, 10, 13, 195]) for _ in range(LOOK)),
        struct.pack("<8Q", *(pointer(rng) if rng.random() < 0.5 else rng.randrange(1 << 64) for _ in range(8))),
        struct.pack("<8Q", *(rng.choice([0, 1, 4096, pointer(rng)]) for _ in range(8))),
    ]
    chosen = rng.choice(kinds)
    return chosen[: rng.choice([LOOK, LOOK, rng.randrange(LOOK)])].ljust(LOOK, b"\0")


def model(raw: bytes) -> str:
    """Return the kind of the bytes: zeros, text, pointers or data."""
    if not any(raw):
        return "zeros"
    text = raw.split(b"\0")[0]
    if len(text) >= 8 and all(32 <= byte < 127 or byte in (9, 10, 13) or byte >= 128 for byte in text):
        return "text"
    words = [word for (word,) in struct.iter_unpack("<Q", raw[: len(raw) // 8 * 8])]
    pointers = sum(word > 4096 and any(start <= word < end for start, end in MAPPED) for word in words)
    return "pointers" if pointers * 2 >= len(words) else "data"


def test_looks_as_the_model_says(rng: random.Random, tmp_path: Path) -> None:
    """Check any place and size; a block with missing bytes is absent."""
    raw = b"".join(content(rng) for _ in range(SIZE // LOOK))
    path = tmp_path / "bytes"
    path.write_bytes(raw)
    space = _native.Space.for_core(X86_64, [SegmentRow(BASE, BASE + SIZE, 0, 0)], [str(path)])
    blocks, truth = [], []
    # Few places are at the end, and random choice alone may draw none of them.
    places = [*(rng.randrange(0, SIZE + 64, 8) for _ in range(4000)), *range(SIZE - 64, SIZE + 64, 8)]
    for at in places:
        size = rng.choice([0, 16, 24, 32, 48, 80, 1 << 20])
        wanted = max(8, min(LOOK, size - 16))
        blocks.append((BASE + at, size))
        truth.append(model(raw[at : at + wanted]) if at + wanted <= SIZE else "absent bytes")
    assert _native.look_at(space, blocks, MAPPED) == truth
    assert set(truth) == {"zeros", "text", "pointers", "data", "absent bytes"}


@pytest.mark.parametrize("size", [0, 1 << 64])
def test_odd_blocks(size: int) -> None:
    """Check that no block gives no answer, and that a size beyond 64 bits is refused and not cut."""
    space = _native.Space.for_core(X86_64, [], [])
    assert _native.look_at(space, [], []) == []
    if size:
        with pytest.raises(OverflowError):
            _native.look_at(space, [(1, size)], [])
    else:
        assert _native.look_at(space, [(1, size)], []) == ["absent bytes"]
