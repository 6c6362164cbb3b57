"""Decisions alone: from what was read of some memory, whether the moment has come, and how soon it could.

Nothing here reads or waits: made-up readings show what a trigger does (tests/test_watch_triggers.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

__all__ = [
    "FASTEST", "MEMORY_ERROR", "AboveSize", "Bounds", "Cause", "Grows", "NearLimit", "Raised",
    "Reading", "Trigger",
]  # fmt: skip

# Bytes a second: a thread that writes to fresh pages gets about this many from the kernel.
FASTEST = 2 << 30
# The growth to the limit is extrapolated from this share of it on: below, a program that starts would look like one.
SOON_SHARE = 0.75
# Over how many seconds, and over how many at least.
RATE_SECONDS, LEAST_RATE_SECONDS = 2.0, 0.1
# What a sliding window is divided into.
WINDOW_PARTS = 200
NEVER = 1e9
MEMORY_ERROR: Final = "memory-error"


@dataclass(frozen=True)
class Reading:
    """Some memory at a moment: ``time`` on a clock that only rises, in seconds; ``size`` bytes that are needed (of a
    process its RSS; of a group or a machine without what the kernel would take back); ``used`` with that; ``limit``
    what there can be, None without one. ``fired``: what woke us, by the wakers' names."""

    time: float
    size: int
    used: int = 0
    limit: int | None = None
    fired: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Cause:
    """Why to act now. ``kind``: "rss" (above ``bound``), "grows" (by ``bound`` in ``seconds``), "limit" (near it),
    "soon" (at its limit in ``seconds``), "pressure" (full, and waiting for memory), "oom" (the kernel found no
    memory and looks for a process to kill), "memory-error" (Python raises MemoryError)."""

    kind: Literal["rss", "grows", "limit", "soon", "pressure", "oom", "memory-error"]
    bytes: int
    bound: int
    seconds: float | None = None
    limit: int | None = None
    cgroup: str | None = None


class Trigger(Protocol):
    """One thing that is waited for. It may remember the readings that it was shown.

    What no reading shows (an exception that a process raises, say) has a waker of its own, whose name is among
    ``fired`` then."""

    def judge(self, reading: Reading) -> Cause | None:
        """Why to act now, or None."""

    def patience(self, reading: Reading) -> float:
        """For how many seconds it cannot come to that, however fast the memory grows."""


class Raised:
    """Python raises MemoryError."""

    def judge(self, reading: Reading) -> Cause | None:
        """Whether that is what woke us."""
        return Cause(MEMORY_ERROR, reading.size, 0) if MEMORY_ERROR in reading.fired else None

    def patience(self, reading: Reading) -> float:
        """It is told of."""
        return NEVER


@dataclass
class AboveSize:
    """More than ``bound`` bytes."""

    bound: int

    def judge(self, reading: Reading) -> Cause | None:
        """Whether it is above."""
        return Cause("rss", reading.size, self.bound, limit=reading.limit) if reading.size > self.bound else None

    def patience(self, reading: Reading) -> float:
        """Until it could be."""
        return _time_to(self.bound, reading.size)


@dataclass
class Grows:
    """By more than ``bound`` bytes within ``seconds``: above the least that was read in that time."""

    bound: int
    seconds: float
    # The readings that a later one may be least against: rising sizes at rising times.
    _least: deque[tuple[float, int]] = field(default_factory=deque)

    def judge(self, reading: Reading) -> Cause | None:
        """Whether it grew by more than that."""
        self._forget(reading)
        while self._least and self._least[-1][1] >= reading.size:
            self._least.pop()
        if not self._least or reading.time - self._least[-1][0] >= self.seconds / WINDOW_PARTS:
            self._least.append((reading.time, reading.size))
        since, least = self._least[0]
        if reading.size - least <= self.bound:
            return None
        return Cause("grows", reading.size, self.bound, max(reading.time - since, 0.0), reading.limit)

    def patience(self, reading: Reading) -> float:
        """Until it could have."""
        least = self._least[0][1] if self._least else reading.size
        return _time_to(least + self.bound, reading.size)

    def _forget(self, reading: Reading) -> None:
        while self._least and reading.time - self._least[0][0] > self.seconds:
            self._least.popleft()


@dataclass
class NearLimit:
    """Before the kernel has none left to give: ``share`` of the limit is needed; or at the rate of the last seconds the
    rest is gone within ``within`` seconds; or it is full and programs wait for memory; or the kernel says so."""

    share: float = 0.9
    within: float = 2.0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def judge(self, reading: Reading) -> Cause | None:
        """Whether it is near."""
        self._remember(reading)
        if "oom" in reading.fired:
            return Cause("oom", reading.size, reading.limit or 0, limit=reading.limit)
        if reading.limit is None:
            return None
        mark = int(reading.limit * self.share)
        if reading.size >= mark:
            return Cause("limit", reading.size, mark, limit=reading.limit)
        if "pressure" in reading.fired and reading.used >= mark:
            return Cause("pressure", reading.size, mark, limit=reading.limit)
        left = self._seconds_left(reading)
        if left is not None and left <= self.within and reading.size >= SOON_SHARE * reading.limit:
            return Cause("soon", reading.size, mark, left, reading.limit)
        return None

    def patience(self, reading: Reading) -> float:
        """Until it could be."""
        return NEVER if reading.limit is None else _time_to(int(reading.limit * self.share), reading.size)

    def _remember(self, reading: Reading) -> None:
        while len(self._recent) > 1 and reading.time - self._recent[0][0] > RATE_SECONDS:
            self._recent.popleft()
        if not self._recent or reading.time - self._recent[-1][0] >= RATE_SECONDS / WINDOW_PARTS:
            self._recent.append((reading.time, reading.size))

    def _seconds_left(self, reading: Reading) -> float | None:
        """At the rate of the last seconds; None where it does not grow, or has not been seen for long enough."""
        if not self._recent or reading.limit is None:
            return None
        since, size = self._recent[0]
        passed, grown = reading.time - since, reading.size - size
        if not LEAST_RATE_SECONDS <= passed <= 2 * RATE_SECONDS or grown <= 0:
            return None
        return (reading.limit - reading.size) * passed / grown


@dataclass
class Bounds:
    """How often to act: ``count`` times (None: no end) on processes of each user, so that nobody uses up what another
    one needs; on one process again after ``again`` seconds. ``acted``: how often it was, in all."""

    count: int | None = 1
    again: float = 600.0
    acted: int = 0
    _last: dict[int, float] = field(default_factory=dict)
    _by_user: dict[int | None, int] = field(default_factory=dict)

    def is_used_up(self, users: Iterable[int | None] = ()) -> bool:
        """Whether it was the last time for all who were acted on, and for these ``users``."""
        return bool(self._by_user) and not any(map(self._is_left, {*self._by_user, *users}))

    def _is_left(self, user: int | None) -> bool:
        return self.count is None or self._by_user.get(user, 0) < self.count

    def allow(self, pid: int, time: float, user: int | None = None) -> bool:
        """Whether to act on a user's process now; that is taken as done. ``user`` None: all have ``count`` together."""
        last = self._last.get(pid)
        if not self._is_left(user) or (last is not None and time - last < self.again):
            return False
        self._last[pid] = time
        self._by_user[user] = self._by_user.get(user, 0) + 1
        self.acted += 1
        return True

    def forget(self, pid: int) -> None:
        """The process has ended: its id may be another's."""
        self._last.pop(pid, None)


def _time_to(bound: int, size: int) -> float:
    return max(bound - size, 0) / FASTEST
