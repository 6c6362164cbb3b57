"""How are sizes distributed over the powers of two?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

__all__ = ["SizeShare", "distribution"]


@dataclass(frozen=True)
class SizeShare:
    """The calls with sizes in [start, end), end a power of two, and their bytes. In JSON ``from`` and ``to``."""

    keys: ClassVar[dict[str, str]] = {"start": "from", "end": "to"}

    start: int
    end: int
    calls: int
    bytes: int


def distribution(sizes: Iterable[int]) -> list[SizeShare]:
    """A row for each power of two from the first that has calls to the last, those between them that have none
    included; the first of all is [0, 1). A size below 0 is a ValueError."""
    sums: dict[int, list[int]] = {}
    for size in sizes:
        if size < 0:
            raise ValueError(f"no call has a size of {size}")
        row = sums.setdefault(size.bit_length(), [0, 0])
        row[0] += 1
        row[1] += size
    bits = range(min(sums, default=0), max(sums, default=-1) + 1)
    return [SizeShare(1 << bit >> 1, 1 << bit, *sums.get(bit, (0, 0))) for bit in bits]
