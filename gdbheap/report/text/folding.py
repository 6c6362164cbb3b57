"""Replace repeating rows by one row: a linked list or a tree of blocks would otherwise fill a page with equal rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from gdbheap.dataclass import dataclass

__all__ = ["NO_GAP", "Gap", "folded"]

Row = list[str]
# A repeating group may have two or three rows, such as an instance, its dict and its values.
MAX_PERIOD = 3
MIN_LEFT_OUT = 3
ROWS_AT_EACH_END = 20
_NUMBER = re.compile(r"(?<![A-Za-z_])\d[\d,]*")


@dataclass(frozen=True)
class Gap:
    """The place where rows were left out of a list: ``count`` rows, before the row with the index ``at``."""

    at: int = 0
    count: int = 0

    def between(self, start: int, end: int) -> int:
        """Return how many rows were left out between the first and the last of the rows with the indices [start,
        end)."""
        return self.count if start < self.at < end else 0


NO_GAP = Gap()


def folded(
    rows: Sequence[Row],
    key: Callable[[Row], tuple[str, ...]],
    more: Callable[[int, set[str]], Row],
    gap: Gap = NO_GAP,
) -> list[Row]:
    """Return the rows, with the middle of each run of repeating rows replaced by one row.

    Rows repeat if their keys are equal except for numbers, one by one or in groups of two or three rows. ``more`` makes
    the row that replaces the others, from their number and the first words of their keys. If a ``gap`` lies within a
    run, its missing rows count as part of the run; otherwise a row of their own stands for them. If the result is still
    long, only the first and last ROWS_AT_EACH_END rows stay.
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
    """Return the period and the length of the run of repeating rows that begins at ``at``.

    The period is the number of rows in a repeating group. If several periods fit, the one that leaves out the most rows
    is returned.
    """
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
        ["…", f"{left:,} more row{'s' * (left != 1)}", *[""] * (len(rows[0]) - 2)],
        *rows[-ROWS_AT_EACH_END:],
    ]
