"""Poll sizes of memory, and wait until the next poll is due.

A wait ends when a waker reports an event. In addition, each memory is read again before it could reach its bound, even
if it grew as fast as a kernel hands out pages: not before 20 ms (100 ms if no limit is near), at the latest
after a second."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from gdbheap.watching.triggers import Cause, Reading, Trigger
from gdbheap.watching.wake_descriptors import Waker

__all__ = ["LONGEST", "SHORTEST_OF_SIZE", "Found", "Gauge", "Gauges", "Memory"]

# Seconds between two readings: the least number where memory may run out, the least number elsewhere, and the most.
SHORTEST, SHORTEST_OF_SIZE, LONGEST = 0.02, 0.1, 1.0


class Memory(Protocol):
    """A memory whose size a gauge reads."""

    @property
    def limit(self) -> int | None:
        """The most bytes that this memory can have; None if there is no limit."""

    def read(self, time: float, fired: frozenset[str] = frozenset()) -> Reading:
        """Return the memory's current size. ``fired``: the names of the wakers that fired since the last reading.
        Raises OSError if the memory no longer exists."""


@dataclass(frozen=True)
class Found:
    """The result of a reading: the causes to act, and whether the kernel has killed a process since the last
    reading."""

    causes: Sequence[Cause]
    killed: bool


@dataclass
class Gauge:
    """A memory to poll, the conditions on it, and the wakers that end a wait.

    ``group``: the control group's name, "" for the machine, None for a process; ``shortest``: the least seconds between
    two readings; ``due``: when to read next (``time.monotonic``); ``fired``: the names of the wakers that fired since
    the last reading."""

    memory: Memory
    triggers: Sequence[Trigger]
    wakers: Sequence[Waker] = ()
    group: str | None = None
    shortest: float = SHORTEST
    due: float = 0.0
    fired: set[str] = field(default_factory=set)

    def look(self, now: float) -> Found:
        """Read the memory, check the conditions, and set when to read next. Raises OSError if the memory no longer
        exists."""
        reading = self.memory.read(now, frozenset(self.fired))
        self.fired.clear()
        found = [cause for trigger in self.triggers if (cause := trigger.judge(reading)) is not None]
        patience = [trigger.patience(reading) for trigger in self.triggers]
        # A condition that is met stays met, so there is no hurry.
        self.due = now + (LONGEST if found else max(self.shortest, min([LONGEST, *patience])))
        return Found(found, "oom_kill" in reading.fired)


class Gauges:
    """The gauges, each under a key, and the wait until one of them is due."""

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}
        self._poll = select.poll()
        self._wakers: dict[int, tuple[str, Waker]] = {}

    def __iter__(self) -> Iterator[Gauge]:
        return iter(self._gauges.values())

    def __contains__(self, key: str) -> bool:
        return key in self._gauges

    def add(self, key: str, make: Callable[[], Gauge]) -> None:
        """Make a gauge under this key, unless the key has one. Raises OSError if the gauge's memory cannot be read."""
        if key in self._gauges:
            return
        self._gauges[key] = gauge = make()
        for waker in gauge.wakers:
            self._wakers[waker.descriptor] = (key, waker)
            self._poll.register(waker.descriptor, waker.mask)

    def drop(self, keys: Iterable[str]) -> None:
        """Remove the gauges with these keys. Unknown keys are ignored."""
        for key in list(keys):
            gauge = self._gauges.pop(key, None)
            for waker in gauge.wakers if gauge else ():
                del self._wakers[waker.descriptor]
                with suppress(KeyError, OSError):
                    self._poll.unregister(waker.descriptor)

    def keep(self, keys: Iterable[str]) -> None:
        """Remove all gauges except those with these keys."""
        self.drop(self._gauges.keys() - set(keys))

    def hurry(self, keys: Iterable[str]) -> None:
        """Make the gauges with these keys due now."""
        for key in self._gauges.keys() & set(keys):
            self._gauges[key].due = 0.0

    def wait(self, until: float, also: int | None = None) -> bool:
        """Wait until a gauge is due, a waker fires, the descriptor ``also`` is readable, or the time ``until`` has come
        (``time.monotonic``). Return whether ``also`` is readable."""
        next_one = min([until, *(gauge.due for gauge in self)])
        if also is not None:
            self._poll.register(also, select.POLLIN)
        ready = [descriptor for descriptor, _events in self._poll.poll(max(0.0, 1000 * (next_one - time.monotonic())))]
        if also is not None:
            self._poll.unregister(also)
        for descriptor in ready:
            if descriptor == also:
                continue
            key, waker = self._wakers[descriptor]
            waker.clear()
            self._gauges[key].fired.add(waker.name)
        return also in ready

    def look(self) -> Iterator[tuple[str, Gauge, Found | None]]:
        """Read each gauge that is due or whose waker fired. Yield its key, the gauge, and its result: None if its
        memory no longer exists."""
        for key, gauge in list(self._gauges.items()):
            now = time.monotonic()
            if not gauge.fired and gauge.due > now:
                continue
            try:
                yield key, gauge, gauge.look(now)
            except OSError:
                self.drop([key])
                yield key, gauge, None
