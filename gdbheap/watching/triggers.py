"""Decide from readings of a memory whether to act, and how soon that could be necessary.

Nothing here reads or waits: tests use made-up readings (tests/test_watch_triggers.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

__all__ = [
    "FASTEST", "MEMORY_ERROR", "AboveSize", "Bounds", "Cause", "Grows", "NearLimit", "Raised",
    "Reading", "Trigger",
]  # fmt: skip

# Bytes per second: about as much as the kernel gives a thread that writes to fresh pages.
FASTEST = 2 << 30
# From this share of the limit on, growth is extrapolated: below it, a starting program would look like a leak.
SOON_SHARE = 0.75
# The growth rate is measured over this many seconds, and over at least the second number.
RATE_SECONDS, LEAST_RATE_SECONDS = 2.0, 0.1
# The number of parts that a sliding window is divided into.
WINDOW_PARTS = 200
NEVER = 1e9
MEMORY_ERROR: Final = "memory-error"


@dataclass(frozen=True)
class Reading:
    """The size of a memory at one moment.

    ``time``: seconds on a clock that only rises; ``size``: bytes that are needed (RSS of a process; of a group or the
    machine without reclaimable memory); ``used``: bytes including reclaimable memory; ``limit``: in bytes, None without
    one; ``fired``: the names of the wakers that fired."""

    time: float
    size: int
    used: int = 0
    limit: int | None = None
    fired: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Cause:
    """Why to act now, by ``kind``.

    "rss": above ``bound``; "grows": by ``bound`` in ``seconds``; "limit": near it; "soon": at its limit in ``seconds``;
    "pressure": full, and programs wait for memory; "oom": the kernel found no memory and looks for a process to kill;
    "memory-error": Python raises MemoryError."""

    kind: Literal["rss", "grows", "limit", "soon", "pressure", "oom", "memory-error"]
    bytes: int
    bound: int
    seconds: float | None = None
    limit: int | None = None
    cgroup: str | None = None


class Trigger(Protocol):
    """A condition to wait for. It may remember the readings that it was given.

    A condition that no reading shows, such as an exception that a process raises, has a waker, whose name is then in
    ``fired``."""

    def judge(self, reading: Reading) -> Cause | None:
        """Return why to act now, or None."""

    def patience(self, reading: Reading) -> float:
        """Return for how many seconds the condition cannot be met, however fast the memory grows."""


class Raised:
    """The condition that Python raises MemoryError."""

    def judge(self, reading: Reading) -> Cause | None:
        """Return the cause if a MemoryError woke us, else None."""
        return Cause(MEMORY_ERROR, reading.size, 0) if MEMORY_ERROR in reading.fired else None

    def patience(self, reading: Reading) -> float:
        """Return NEVER: it is not polled, a waker reports it."""
        return NEVER


@dataclass
class AboveSize:
    """The condition that a memory has more than ``bound`` bytes."""

    bound: int

    def judge(self, reading: Reading) -> Cause | None:
        """Return the cause if the memory is above the bound, else None."""
        return Cause("rss", reading.size, self.bound, limit=reading.limit) if reading.size > self.bound else None

    def patience(self, reading: Reading) -> float:
        """Return the shortest time in seconds until the memory could be above the bound."""
        return _time_to(self.bound, reading.size)


@dataclass
class Grows:
    """The condition that a memory grows by more than ``bound`` bytes within ``seconds``, compared with the least size
    read in that time."""

    bound: int
    seconds: float
    # The readings that may be the least for a later one: rising sizes at rising times.
    _least: deque[tuple[float, int]] = field(default_factory=deque)

    def judge(self, reading: Reading) -> Cause | None:
        """Return the cause if the memory grew by more than the bound, else None."""
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
        """Return the shortest time in seconds until it could have grown that much."""
        least = self._least[0][1] if self._least else reading.size
        return _time_to(least + self.bound, reading.size)

    def _forget(self, reading: Reading) -> None:
        while self._least and reading.time - self._least[0][0] > self.seconds:
            self._least.popleft()


@dataclass
class NearLimit:
    """The condition that the kernel will soon have no memory left to give.

    It is met if ``share`` of the limit is needed, if at the current rate the rest is gone within ``within`` seconds, if
    the memory is full and programs wait for it, or if the kernel reports that it is out of memory."""

    share: float = 0.9
    within: float = 2.0
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def judge(self, reading: Reading) -> Cause | None:
        """Return the cause if the memory is near its limit, else None."""
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
        """Return the shortest time in seconds until it could be near its limit."""
        return NEVER if reading.limit is None else _time_to(int(reading.limit * self.share), reading.size)

    def _remember(self, reading: Reading) -> None:
        while len(self._recent) > 1 and reading.time - self._recent[0][0] > RATE_SECONDS:
            self._recent.popleft()
        if not self._recent or reading.time - self._recent[-1][0] >= RATE_SECONDS / WINDOW_PARTS:
            self._recent.append((reading.time, reading.size))

    def _seconds_left(self, reading: Reading) -> float | None:
        """Return in how many seconds the limit is reached at the current rate; None if the memory does not grow, or was
        not observed for long enough."""
        if not self._recent or reading.limit is None:
            return None
        since, size = self._recent[0]
        passed, grown = reading.time - since, reading.size - size
        if not LEAST_RATE_SECONDS <= passed <= 2 * RATE_SECONDS or grown <= 0:
            return None
        return (reading.limit - reading.size) * passed / grown


@dataclass
class Bounds:
    """How often to act.

    ``count``: times for each user's processes (None: no limit), so that no user takes what another needs; ``again``:
    the least seconds between two actions on one process; ``acted``: how often it acted in all."""

    count: int | None = 1
    again: float = 600.0
    acted: int = 0
    _last: dict[int, float] = field(default_factory=dict)
    _by_user: dict[int | None, int] = field(default_factory=dict)

    def is_used_up(self, users: Iterable[int | None] = ()) -> bool:
        """Return whether no action is left, for all users acted on and for these ``users``."""
        return bool(self._by_user) and not any(map(self._is_left, {*self._by_user, *users}))

    def _is_left(self, user: int | None) -> bool:
        return self.count is None or self._by_user.get(user, 0) < self.count

    def allow(self, pid: int, time: float, user: int | None = None) -> bool:
        """Return whether to act on a user's process now; if so, the action is counted. With ``user`` None all processes
        share ``count``."""
        last = self._last.get(pid)
        if not self._is_left(user) or (last is not None and time - last < self.again):
            return False
        self._last[pid] = time
        self._by_user[user] = self._by_user.get(user, 0) + 1
        self.acted += 1
        return True

    def forget(self, pid: int) -> None:
        """Forget a process that has ended: its id may be reused."""
        self._last.pop(pid, None)


def _time_to(bound: int, size: int) -> float:
    return max(bound - size, 0) / FASTEST
