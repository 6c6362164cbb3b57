"""Group allocation calls by size, in powers of two."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import ClassVar

from gdbheap.dataclass import dataclass

__all__ = ["SizeSums", "SizeShare", "distribution"]


@dataclass(frozen=True)
class SizeShare:
    """The calls whose sizes lie in [start, end), where ``end`` is a power of two.

    In JSON the keys are ``from`` and ``to``.
    """

    keys: ClassVar[dict[str, str]] = {"start": "from", "end": "to"}

    start: int
    end: int
    calls: int
    bytes: int


@dataclass
class SizeSums:
    """Counts calls and their bytes by powers of two."""

    calls: int = 0
    bytes: int = 0
    _rows: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, size: int) -> None:
        """Count a call of ``size`` bytes. Raises ValueError for a size below 0."""
        if size < 0:
            raise ValueError(f"no call has a size of {size}")
        self.calls += 1
        self.bytes += size
        calls, bytes = self._rows.get(size.bit_length(), (0, 0))
        self._rows[size.bit_length()] = calls + 1, bytes + size

    def shares(self) -> list[SizeShare]:
        """Return a row for each power of two from the smallest size to the largest; rows without calls are included.

        Size 0 has the row [0, 1).
        """
        bits = range(min(self._rows, default=0), max(self._rows, default=-1) + 1)
        return [SizeShare(1 << bit >> 1, 1 << bit, *self._rows.get(bit, (0, 0))) for bit in bits]


def distribution(sizes: Iterable[int]) -> list[SizeShare]:
    """Return a row for each power of two, from the sizes of calls. Raises ValueError for a size below 0."""
    sums = SizeSums()
    for size in sizes:
        sums.add(size)
    return sums.shares()
