"""Decide from readings of a memory whether to act, and how soon an action could become necessary.

The code itself reads no memory and does not wait, so that tests can pass made-up readings
(tests/test_watch_triggers.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import field
from typing import Final, Literal, Protocol

from gdbheap.dataclass import dataclass

__all__ = [
    "FASTEST", "MEMORY_ERROR", "AboveSize", "Bounds", "Cause", "Grows", "MemoryErrorTrigger", "NearLimit",
    "RateTrigger", "Reading", "Trigger",
]  # fmt: skip

# Bytes per second: about as fast as the kernel gives pages to a thread that writes to new memory.
FASTEST = 2 << 30
# Growth is extrapolated only above this share of the limit. Below it, a starting program would look like a leak.
SOON_SHARE = 0.75
# The growth rate is measured over the first number of seconds, and at least over the second.
RATE_SECONDS, LEAST_RATE_SECONDS = 2.0, 0.1
# A sliding window is divided into this many parts.
WINDOW_PARTS = 200
NEVER = 1e9
# The first pause after an action that could do nothing.
RETRY_SECONDS = 5.0
MEMORY_ERROR: Final = "memory-error"


@dataclass(frozen=True)
class Reading:
    """The size of a memory at one moment.

    ``time``: seconds on a monotonic clock.
    ``size``: bytes that cannot be reclaimed; for a process its RSS.
    ``used``: bytes including reclaimable memory.
    ``limit``: the limit in bytes, None for no limit.
    ``fired``: the names of the wakers that reported an event since the last reading.
    """

    time: float
    size: int
    used: int = 0
    limit: int | None = None
    fired: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Cause:
    """The condition that made ``watch`` act. ``kind`` has one of these values.

    "rss": the memory is above ``bound``.
    "grows": it grew by more than ``bound`` in ``seconds``.
    "limit": it is near its limit.
    "soon": it will reach its limit in ``seconds``.
    "pressure": it is full, and programs wait for memory.
    "oom": the kernel is out of memory and chooses a process to kill.
    "memory-error": Python raises MemoryError.
    """

    kind: Literal["rss", "grows", "limit", "soon", "pressure", "oom", "memory-error"]
    bytes: int
    bound: int
    seconds: float | None = None
    limit: int | None = None
    cgroup: str | None = None

    @property
    def is_urgent(self) -> bool:
        """Whether memory runs out: an action then does not wait because of an earlier one for a mere size."""
        return self.kind not in ("rss", "grows")


class Trigger(Protocol):
    """A condition to wait for. It may store the readings that it gets.

    A condition that sizes cannot show, such as an exception in the process, has a waker. If the waker fired, its name
    is in the reading's ``fired``."""

    def judge(self, reading: Reading) -> Cause | None:
        """Return the cause for which to act now; None if the condition is not met."""

    def patience(self, reading: Reading) -> float:
        """Return the smallest number of seconds until the condition can be met, if the memory grows at the fastest
        possible rate.
        """


class MemoryErrorTrigger:
    """The condition that Python raises a MemoryError."""

    def judge(self, reading: Reading) -> Cause | None:
        return Cause(MEMORY_ERROR, reading.size, 0) if MEMORY_ERROR in reading.fired else None

    def patience(self, reading: Reading) -> float:
        """Return NEVER: only a waker can report this condition, polling cannot."""
        return NEVER


@dataclass
class AboveSize:
    """The condition that a memory has more than ``bound`` bytes."""

    bound: int

    def judge(self, reading: Reading) -> Cause | None:
        return Cause("rss", reading.size, self.bound, limit=reading.limit) if reading.size > self.bound else None

    def patience(self, reading: Reading) -> float:
        return _time_to(self.bound, reading.size)


@dataclass
class Grows:
    """The condition that a memory has grown by more than ``bound`` bytes, compared with the smallest size within the
    last ``seconds``. Sizes before the time ``start`` do not count.
    """

    bound: int
    seconds: float
    start: float = 0.0
    # (time, size) of each reading that may be the least one when a later reading comes. Both numbers rise from one
    # reading to the next.
    _least: deque[tuple[float, int]] = field(default_factory=deque)

    def judge(self, reading: Reading) -> Cause | None:
        if reading.time < self.start:
            return None
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
        least = self._least[0][1] if self._least else reading.size
        return max(self.start - reading.time, _time_to(least + self.bound, reading.size))

    def _forget(self, reading: Reading) -> None:
        while self._least and reading.time - self._least[0][0] > self.seconds:
            self._least.popleft()


@dataclass
class RateTrigger:
    """A trigger without a condition. It only measures how fast a memory grows."""

    _recent: deque[tuple[float, int]] = field(default_factory=deque, init=False)

    def judge(self, reading: Reading) -> Cause | None:
        """Store the reading, from which the growth rate is computed. Return None, because there is no condition."""
        while len(self._recent) > 1 and reading.time - self._recent[0][0] > RATE_SECONDS:
            self._recent.popleft()
        if not self._recent or reading.time - self._recent[-1][0] >= RATE_SECONDS / WINDOW_PARTS:
            self._recent.append((reading.time, reading.size))
        return None

    def patience(self, reading: Reading) -> float:
        """Return NEVER, because there is no condition."""
        return NEVER

    def seconds_left(self, reading: Reading) -> float | None:
        """Return in how many seconds the memory reaches its limit at the current growth rate. Return None if it does
        not grow, or was not observed for long enough."""
        if not self._recent or reading.limit is None:
            return None
        since, size = self._recent[0]
        passed, grown = reading.time - since, reading.size - size
        if not LEAST_RATE_SECONDS <= passed <= 2 * RATE_SECONDS or grown <= 0:
            return None
        return (reading.limit - reading.size) * passed / grown


@dataclass
class NearLimit(RateTrigger):
    """The condition that memory is about to run out. One of these cases suffices.

    - The size reaches ``share`` of the limit.
    - At the current growth rate, the size reaches the limit within ``within`` seconds.
    - The memory is full, and programs wait for it.
    - The kernel reports that it is out of memory.
    """

    share: float = 0.9
    within: float = 2.0

    def judge(self, reading: Reading) -> Cause | None:
        super().judge(reading)
        if "oom" in reading.fired:
            return Cause("oom", reading.size, reading.limit or 0, limit=reading.limit)
        if reading.limit is None:
            return None
        mark = int(reading.limit * self.share)
        if reading.size >= mark:
            return Cause("limit", reading.size, mark, limit=reading.limit)
        if "pressure" in reading.fired and reading.used >= mark:
            return Cause("pressure", reading.size, mark, limit=reading.limit)
        left = self.seconds_left(reading)
        if left is not None and left <= self.within and reading.size >= SOON_SHARE * reading.limit:
            return Cause("soon", reading.size, mark, left, reading.limit)
        return None

    def patience(self, reading: Reading) -> float:
        return NEVER if reading.limit is None else _time_to(int(reading.limit * self.share), reading.size)


@dataclass
class Bounds:
    """The limits for the number of actions.

    ``count``: the most actions on the processes of one user, None for no limit. Each user has this number, so that one
    user's processes cannot use up the actions of another user.
    ``again``: the fewest seconds between two actions on the same process. Urgent causes (``Cause.is_urgent``) have
    pauses of their own.
    """

    count: int | None = 1
    again: float = 600.0
    _last: dict[tuple[int, bool], float] = field(default_factory=dict)
    _pauses: dict[tuple[int, bool], float] = field(default_factory=dict)
    _by_user: dict[int | None, int] = field(default_factory=dict)

    def is_used_up(self, users: Iterable[int | None] = ()) -> bool:
        """Return whether no action is left for any of ``users``, and for any other user on whose processes the watch
        has acted. Return False before the first action.
        """
        return bool(self._by_user) and not any(map(self._is_left, {*self._by_user, *users}))

    def _is_left(self, user: int | None) -> bool:
        return self.count is None or self._by_user.get(user, 0) < self.count

    def allow(self, pid: int, time: float, user: int | None = None, is_urgent: bool = False) -> bool:
        """Return whether to act now on a process of this user; if so, add one to the user's number of actions. If
        ``user`` is None, the limit ``self.count`` applies to all processes together."""
        last = self._last.get((pid, is_urgent))
        if not self._is_left(user) or (last is not None and time - last < self.again):
            return False
        self._last[pid, is_urgent] = time
        self._by_user[user] = self._by_user.get(user, 0) + 1
        return True

    def give_back(self, pid: int, time: float, user: int | None = None, is_urgent: bool = False) -> None:
        """Do not count an action that could do nothing, and allow another one on the process after a pause. The pause
        doubles each time, from RETRY_SECONDS up to ``self.again``.
        """
        self._by_user[user] -= 1
        key = pid, is_urgent
        if key in self._last:
            pause = min(self._pauses.get(key, RETRY_SECONDS), self.again)
            self._last[key] = time + pause - self.again
            self._pauses[key] = 2 * pause

    def has_acted(self, pid: int, is_urgent: bool = False) -> None:
        """Begin with the first pause again if a later action on the process can do nothing."""
        self._pauses.pop((pid, is_urgent), None)

    def forget(self, pid: int) -> None:
        """Forget a process that has ended, because its id may be reused."""
        for key in ((pid, False), (pid, True)):
            self._last.pop(key, None)
            self._pauses.pop(key, None)


def _time_to(bound: int, size: int) -> float:
    return max(bound - size, 0) / FASTEST
