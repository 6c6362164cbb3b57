"""Decisions of triggers on made-up readings: against a model that remembers everything, and at the limits."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from gdbheap.report.text.numbers import duration_text, parse_duration
from gdbheap.watching.polling import LONGEST, SHORTEST, PolledMemory
from gdbheap.watching.triggers import (
    FASTEST,
    RATE_SECONDS,
    SOON_SHARE,
    WINDOW_PARTS,
    AboveSize,
    Bounds,
    Grows,
    NearLimit,
    Reading,
)

MIB = 1 << 20


def walk(rng: random.Random, steps: int, seconds: float) -> list[Reading]:
    """Return readings at random times, of a size that goes up and down."""
    time, size, found = rng.uniform(0, 1e6), rng.randrange(1000) * MIB, []
    for _ in range(steps):
        time += rng.expovariate(1 / seconds)
        size = max(0, size + rng.choice([-3, -1, 1, 1, 2, 3]) * rng.randrange(20 * MIB))
        found.append(Reading(time, size, size))
    return found


def test_above_size(rng: random.Random) -> None:
    """Check that the trigger needs more than the bound, and that growth at the fastest rate does not get there
    before the predicted time."""
    for _ in range(500):
        bound, size = rng.randrange(1 << 40), rng.randrange(1 << 40)
        trigger = AboveSize(bound)
        cause = trigger.judge(Reading(0, size))
        assert (cause is not None) == (size > bound)
        assert cause is None or (cause.kind, cause.bytes, cause.bound) == ("rss", size, bound)
        assert size + trigger.patience(Reading(0, size)) * FASTEST == pytest.approx(max(size, bound))
    assert AboveSize(5).judge(Reading(0, 5)) is None and AboveSize(5).judge(Reading(0, 6)) is not None


def test_growth_is_above_the_least_in_the_window(rng: random.Random) -> None:
    """Check against a model that keeps every reading, except for readings at the edge of the window."""
    for _ in range(50):
        seconds, bound = rng.choice([1.0, 60.0, 3600.0]), rng.randrange(1, 200) * MIB
        trigger, seen = Grows(bound, seconds), list[Reading]()
        edge = seconds / WINDOW_PARTS
        for reading in walk(rng, 300, seconds / rng.choice([10, 100, 1000])):
            seen.append(reading)
            cause = trigger.judge(reading)
            grown = {
                window: reading.size - min(one.size for one in seen if reading.time - one.time <= window)
                for window in (seconds - edge, seconds + edge)
            }
            if cause is None:
                # A reading within a part of the window of a smaller one may be left out.
                assert grown[seconds - edge] <= bound or _close_to_a_kept_one(seen, seconds, edge, bound)
            else:
                assert grown[seconds + edge] > bound and cause.bound == bound and (cause.seconds or 0) <= seconds


def _close_to_a_kept_one(seen: list[Reading], seconds: float, edge: float, bound: int) -> bool:
    """Return whether the growth is one only against readings within ``edge`` after a lower one."""
    last = seen[-1]
    window = [one for one in seen if last.time - one.time <= seconds and last.size - one.size > bound]
    return all(
        any(0 < one.time - other.time < edge and other.size < one.size for other in seen) for one in window
    )  # fmt: skip


def test_growth_of_a_start(rng: random.Random) -> None:
    """Check that sizes before the start do not count, and that no reading is due before it."""
    start = rng.uniform(1, 60)
    trigger = Grows(MIB, 600.0, start)
    early = Reading(start * rng.random(), rng.randrange(MIB))
    assert trigger.judge(early) is None and trigger.patience(early) >= start - early.time
    assert trigger.judge(Reading(start, 90 * MIB)) is None
    assert trigger.judge(Reading(start + 1, 91 * MIB)) is None
    cause = trigger.judge(Reading(start + 2, 91 * MIB + 1))
    assert cause is not None and cause.seconds == pytest.approx(2)


def test_growth_remembers_little(rng: random.Random) -> None:
    """Check that a day of readings every 20 ms costs no more than the parts of the window."""
    trigger = Grows(1 << 60, 86400.0)
    for number in range(100_000):
        trigger.judge(Reading(number * 0.9, number * 1000))
    assert len(trigger._least) <= WINDOW_PARTS + 1


def test_near_limit_by_share(rng: random.Random) -> None:
    """Check the share of the limit, whatever the kernel could take back; there is no trigger without a limit."""
    for _ in range(300):
        limit, share = rng.randrange(1 << 20, 1 << 40), rng.choice([0.5, 0.9, 0.99])
        size = int(limit * rng.uniform(0, 1.1))
        trigger = NearLimit(share)
        cause = trigger.judge(Reading(0, size, limit, limit))
        assert (cause is not None) == (size >= int(limit * share))
        assert NearLimit(share).judge(Reading(0, size, size)) is None
        assert NearLimit(share).patience(Reading(0, size, size)) > 1e6
        assert trigger.patience(Reading(0, size, size, limit)) <= limit / FASTEST


def test_near_limit_by_rate(rng: random.Random) -> None:
    """Check that steady growth triggers when the rest lasts no longer than requested, from three quarters of the
    limit on."""
    for _ in range(200):
        limit, rate, within = 1 << 30, rng.uniform(10, 2000) * MIB, rng.uniform(0.1, 5)
        trigger, time, cause = NearLimit(0.99, within), 0.0, None
        while cause is None:
            size = int(rate * time)
            before = Reading(time, size, size, limit)
            cause = trigger.judge(before)
            time += 0.02
        due = max(limit - within * rate, SOON_SHARE * limit)
        if cause.kind == "soon":
            # Not before, and no later than a rate can be measured.
            assert due - 1 <= cause.bytes <= due + 0.15 * rate
            assert cause.seconds == pytest.approx((limit - cause.bytes) / rate, rel=0.01, abs=0.01)
        else:
            assert cause.kind == "limit" and cause.bytes >= int(0.99 * limit)
            # It was not due before, as far as its rate could be measured.
            assert due + 0.17 * rate >= int(0.99 * limit)


def test_a_start_is_no_danger() -> None:
    """Check that a program that takes half of its limit at once, or stays near it for long, does not trigger."""
    trigger = NearLimit(0.9, 2.0)
    for number in range(100):
        size = min(number * 7, 70) * MIB
        assert trigger.judge(Reading(number * 0.02, size, size, 100 * MIB)) is None
    standing = NearLimit(0.9, 2.0)
    for number in range(100):
        assert standing.judge(Reading(number, 89 * MIB, 100 * MIB, 100 * MIB)) is None


def test_rate_is_of_the_last_seconds() -> None:
    """Check that there is no rate after a long wait between two readings."""
    trigger = NearLimit(0.9, 1e6)
    assert trigger.judge(Reading(0, 10 * MIB, 0, 100 * MIB)) is None
    assert trigger.judge(Reading(10 * RATE_SECONDS, 80 * MIB, 0, 100 * MIB)) is None
    found = trigger.judge(Reading(10 * RATE_SECONDS + 0.5, 81 * MIB, 0, 100 * MIB))
    assert found is None or found.kind == "soon"


def test_what_the_kernel_says() -> None:
    """Check that an out-of-memory report triggers at once, and that a wait for memory triggers only if none is left."""
    low = Reading(0, 1 * MIB, 1 * MIB, 100 * MIB, frozenset({"oom"}))
    cause = NearLimit().judge(low)
    assert cause is not None and cause.kind == "oom"
    for used, kind in ((80 * MIB, None), (95 * MIB, "pressure")):
        found = NearLimit().judge(Reading(0, 20 * MIB, used, 100 * MIB, frozenset({"pressure"})))
        assert (found.kind if found else None) == kind
    assert NearLimit().judge(Reading(0, 20 * MIB, 95 * MIB, 100 * MIB, frozenset({"events", "mark"}))) is None


def test_bounds() -> None:
    """Check the number of actions in total, and the interval between two on one process."""
    bounds = Bounds(3, 10.0)
    assert bounds.allow(1, 0) and not bounds.allow(1, 9.9) and bounds.allow(2, 9.9) and not bounds.is_used_up()
    assert bounds.allow(1, 10.0) and bounds.is_used_up()
    assert not bounds.allow(3, 100)
    pauses = Bounds(None, 10.0)
    assert pauses.allow(1, 0) and pauses.allow(1, 1, is_urgent=True)
    assert not pauses.allow(1, 9.9) and pauses.allow(1, 10) and not pauses.allow(1, 10.9, is_urgent=True)
    forever = Bounds(None, 0.0)
    assert all(forever.allow(1, time) for time in range(1000)) and not forever.is_used_up()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("500ms", 0.5), ("10m", 600), ("1.5h", 5400), ("2d", 172800), ("0", 0), (" 1m ", 60)],
)
def test_durations(text: str, seconds: float) -> None:
    """Check seconds, or a number with a unit."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "-1", "1x", "1 m", "1e3", "nan", "99999999999", "1.", "١"])
def test_no_durations(text: str) -> None:
    """Check that any other text is an error."""
    with pytest.raises(ValueError, match="duration|waits"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.012, "12 ms"), (1, "1 s"), (1.25, "1.2 s"), (60, "1 min"), (90, "90 s"), (600, "10 min"), (7200, "2 h"),
     (86400, "1 day"), (259200, "3 days")],
)  # fmt: skip
def test_durations_for_people(seconds: float, text: str) -> None:
    """Check that there is at most one decimal, in a suitable unit."""
    assert duration_text(seconds) == text


@dataclass
class MadeUp:
    """A memory whose readings are given."""

    readings: list[Reading]
    limit: int | None = None
    kills: int | None = None

    def read(self, time: float, fired: frozenset[str] = frozenset()) -> Reading:
        """Return the next reading, at this time."""
        return replace(self.readings.pop(0), time=time, fired=fired)


def test_when_a_gauge_is_read_next(rng: random.Random) -> None:
    """Check that a gauge is read again when the most impatient of its triggers may be met, within the two limits, and
    last after one was met: that one would be met again at once."""
    for _ in range(200):
        bound, sizes = rng.randrange(1, 1 << 34), [rng.randrange(1 << 34) for _ in range(5)]
        triggers = [AboveSize(bound), AboveSize(2 * bound)]
        gauge = PolledMemory(MadeUp([Reading(0, size, size) for size in sizes]), triggers, shortest=SHORTEST)
        for size in sizes:
            now = rng.uniform(0, 1e6)
            gauge.fired.add("oom_kill")
            found = gauge.read(now)
            assert found.killed and gauge.fired == set() and gauge.last is not None and gauge.last.size == size
            assert [cause.bound for cause in found.causes] == [one.bound for one in triggers if size > one.bound]
            soonest = min(trigger.patience(Reading(now, size)) for trigger in triggers)
            wait = LONGEST if found.causes else max(SHORTEST, min(LONGEST, soonest))
            assert gauge.due == pytest.approx(now + wait)
