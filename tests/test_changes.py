"""Differences of made-up snapshots: trends, owners that a list may or may not have left out, and the time left."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from gdbheap.answers.retained_rows import RetainedRow
from gdbheap.snapshots import difference
from gdbheap.snapshots.difference import MAX_OWNERS, LineChange, TypeChange


def look(rss: int, time: float, owners: list[RetainedRow] | None = None) -> Any:
    """Return a snapshot with this RSS and these owners."""
    return SimpleNamespace(time=time, owners=owners, ledger=SimpleNamespace(rss=SimpleNamespace(bytes=rss)))


def line(name: str, sizes: list[int]) -> LineChange:
    """Return a line of the ledger that had these sizes."""
    return LineChange(name, None, name, sizes[-1] - sizes[0], 0, [*sizes])


def kind(name: str, sizes: list[int]) -> TypeChange:
    """Return a type whose objects had these sizes."""
    return TypeChange(name, 0, 0, 0, sizes[-1] - sizes[0], sizes)


def rises(sizes: list[int]) -> bool:
    """Return whether sizes never fell and grew in the end."""
    return sorted(sizes) == sizes and sizes[0] != sizes[-1]


def test_trends_are_what_only_grew(rng: random.Random) -> None:
    """Check that the trend has exactly the figures that never fell and grew, the fastest first, each with its rate."""
    for _ in range(100):
        count, start, step = rng.randrange(3, 6), rng.uniform(0, 1e6), rng.uniform(1, 100)
        sizes = [[rng.randrange(4) << 20 for _ in range(count)] for _ in range(9)]
        sizes = [rng.choice([one, sorted(one), sorted(one, reverse=True), one[:1] * count]) for one in sizes]
        lines = [line(f"line {number}", one) for number, one in enumerate(sizes[:4])]
        types = [kind(f"type {number}", one) for number, one in enumerate(sizes[4:8])]
        looks = [look(size, start + step * number) for number, size in enumerate(sizes[8])]
        found = difference._trend(looks, lines, types)
        names = {("line", one.id) for one in lines if rises(one.looks)}  # type: ignore[arg-type]
        names |= {("type", one.type) for one in types if rises(one.looks)}
        names |= {("rss", "RSS")} if rises(sizes[8]) else set()
        assert {(row.kind, row.name) for row in found} == names
        seconds = step * (count - 1)
        assert all(row.rate == pytest.approx((row.looks[-1] - row.looks[0]) / seconds) for row in found)
        assert [row.rate for row in found] == sorted((row.rate for row in found), reverse=True)
        assert difference._trend(looks[:2], lines, types) == []


def kept(number: int, retained: int) -> RetainedRow:
    """Return an object of a list of owners."""
    return RetainedRow(number, "list", 1, 100, retained, f"x[{number}]", None)


@pytest.mark.parametrize("is_cut", [False, True])
def test_an_owner_without_a_row(is_cut: bool, rng: random.Random) -> None:
    """Check an object that only one list has: in a whole list it retained nothing before, in a cut one at most as much
    as the smallest row."""
    count = MAX_OWNERS if is_cut else rng.randrange(2, MAX_OWNERS)
    before = [kept(number, rng.randrange(1000, 2000)) for number in range(1, count + 1)]
    least = min(row.retained for row in before) if is_cut else 0
    new = kept(count + 1, rng.randrange(3000, 4000))
    after = [*before[:-1], new]
    changes = difference._owners([look(0, 0.0, before), look(0, 1.0, after)], True)
    rows = {row.address: row for row in changes}
    assert rows[new.address].retained == new.retained - least
    gone = before[-1]
    bound = min(min(row.retained for row in after), gone.retained) if len(after) >= MAX_OWNERS else 0
    assert gone.retained == bound or rows[gone.address].retained == bound - gone.retained
    assert [row.retained for row in changes] == sorted((row.retained for row in changes), reverse=True)


def test_the_time_until_the_limit(rng: random.Random) -> None:
    """Check that the time counts from the last snapshot, at the rate between the two; and the cases without one."""
    for _ in range(50):
        first, more, seconds = rng.randrange(1 << 30), rng.randrange(1, 1 << 30), rng.uniform(0.1, 1e5)
        limit = rng.randrange(1 << 33)
        looks = look(first, 5.0), look(first + more, 5.0 + seconds)
        rate = more / seconds
        left = difference._seconds_left(*looks, more, limit)
        assert left == pytest.approx(max(0.0, (limit - first - more) / rate))
        assert difference._seconds_left(*looks, more, None) is None
        assert difference._seconds_left(*looks, -more, limit) is None
        assert difference._seconds_left(*looks, None, limit) is None
