"""Fold rows that repeat: a linked list or a tree of blocks would be a page of equal lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["NO_GAP", "Gap", "folded"]

Row = list[str]
# A step may be two or three rows: an instance, its dict, its values.
MAX_PERIOD = 3
MIN_LEFT_OUT = 3
ROWS_AT_EACH_END = 20
_NUMBER = re.compile(r"(?<![A-Za-z_])\d[\d,]*")


@dataclass(frozen=True)
class Gap:
    """Missing rows: ``count`` of them, before the row ``at``."""

    at: int = 0
    count: int = 0

    def between(self, start: int, end: int) -> int:
        """Return how many rows are missing between the first and the last of the rows [start, end)."""
        return self.count if start < self.at < end else 0


NO_GAP = Gap()


def folded(
    rows: Sequence[Row],
    key: Callable[[Row], tuple[str, ...]],
    more: Callable[[int, set[str]], Row],
    gap: Gap = NO_GAP,
) -> list[Row]:
    """Return ``rows`` with the middle of each run of repeating rows replaced by one row.

    Rows repeat if their keys do, one by one or in periods of two or three; numbers in the keys may differ. ``more``
    makes the replacing row from the number of rows left out and the first words of their keys. If the rows around a
    ``gap`` are one run, its missing rows count as part of that; otherwise they get a row of their own. If the result is
    still long, only the first and last ROWS_AT_EACH_END rows stay.
    """
    keys = [tuple(_NUMBER.sub("#", word) for word in key(row)) for row in rows]
    shown: list[Row] = []
    at = 0
    while at < len(rows):
        if gap.count and at == gap.at:
            shown.append(more(gap.count, set()))
        period, length = _run(keys, at)
        left = length - 2 * period + gap.between(at, at + length)
        if left < MIN_LEFT_OUT or length < 2 * period:
            shown.append(rows[at])
            at += 1
            continue
        kinds = {name for name, *_rest in keys[at : at + period]}
        shown += [*rows[at : at + period], more(left, kinds), *rows[at + length - period : at + length]]
        at += length
    return _without_middle(shown)


def _run(keys: Sequence[tuple[str, ...]], at: int) -> tuple[int, int]:
    """Return the period that leaves out the most rows from ``at`` on, and the length of its run."""
    lengths = [(period, _length(keys, at, period)) for period in range(1, MAX_PERIOD + 1)]
    return max(lengths, key=lambda found: found[1] - 2 * found[0])


def _length(keys: Sequence[tuple[str, ...]], at: int, period: int) -> int:
    end = at + period
    while end < len(keys) and keys[end] == keys[end - period]:
        end += 1
    return end - at


def _without_middle(rows: list[Row]) -> list[Row]:
    left = len(rows) - 2 * ROWS_AT_EACH_END
    if left <= 1:
        return rows
    return [
        *rows[:ROWS_AT_EACH_END],
        ["…", f"{left:,} more rows", *[""] * (len(rows[0]) - 2)],
        *rows[-ROWS_AT_EACH_END:],
    ]
