"""Arithmetic on ranges of addresses: lists of (start, end), ascending."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from gdbheap._native import Space

Ranges = list[tuple[int, int]]


class OwnedRange(NamedTuple):
    """A range [start, end) of an owner. ``number``: the number of the owner."""

    number: int
    start: int
    end: int


class WordTest(NamedTuple):
    """A test of the word that lies ``offset`` bytes after an address.

    The number in the bits ``mask`` of the word must lie between ``low`` and ``high``.
    """

    offset: int
    mask: int
    low: int
    high: int


def joined(ranges: Ranges) -> Ranges:
    """Return ``ranges`` with touching and overlapping ones merged."""
    result: Ranges = []
    for start, end in ranges:
        if result and result[-1][1] >= start:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def within(ranges: Ranges, start: int, end: int) -> Ranges:
    """Return the ranges that overlap [start, end); ``ranges`` are disjoint."""
    first, last = bisect_left(ranges, (start + 1,)), bisect_left(ranges, (end,))
    return ranges[first - 1 if first and ranges[first - 1][1] > start else first : last]


def backed_pieces(space: Space, start: int, end: int, size: int, beyond: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield (address, bytes) of the memory [start, end) in parts of ``size`` bytes.

    Each part also has the first ``beyond`` bytes of the next part, so that data on the border is found. Parts begin at
    multiples of a word. Memory that is certainly zero is skipped.
    """
    at = start
    while (backed := space.next_backed(at)) is not None and backed < end:
        at = max(at, backed - backed % space.machine.word)
        yield at, space.read_available(at, min(size + beyond, end - at))
        at += size


def holds(ranges: Ranges, address: int) -> bool:
    """Return whether one of ``ranges`` (disjoint) contains an address."""
    return containing(ranges, address) is not None


def containing(ranges: Ranges, address: int) -> tuple[int, int] | None:
    """Return the range that contains an address; None if none does. ``ranges`` are disjoint."""
    index = bisect_left(ranges, (address + 1,)) - 1
    return ranges[index] if index >= 0 and ranges[index][0] <= address < ranges[index][1] else None


def subtract(ranges: Ranges, holes: Ranges) -> Ranges:
    """Return the parts of ``ranges`` (disjoint) that are outside all ``holes`` (which may overlap)."""
    holes = joined(holes)
    starts = [start for start, _end in holes]
    rest: Ranges = []
    for start, end in ranges:
        at = start
        index = max(0, bisect_right(starts, start) - 1)
        while index < len(holes) and holes[index][0] < end:
            low, high = holes[index]
            if low > at:
                rest.append((at, low))
            at = max(at, high)
            index += 1
        if at < end:
            rest.append((at, end))
    return rest


def intersect(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the parts of ``ranges`` (disjoint) that are in one of ``others``."""
    return subtract(ranges, subtract(ranges, others))
