"""Poll sizes of memory, and wait until the next poll is due.

A wait ends early when a waker reports an event. Otherwise a memory is read again before it can reach its bound, even at
the fastest possible growth: after at least 20 ms (100 ms if no limit is near) and at most a second.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Protocol

from gdbheap.dataclass import dataclass
from gdbheap.watching.triggers import Cause, Reading, Trigger
from gdbheap.watching.wake_descriptors import Waker

# The kernel's limit for a wait is 2**31 milliseconds.
LONGEST_WAIT = 1e9

__all__ = ["LONGEST", "SHORTEST_OF_SIZE", "GaugeReading", "Gauge", "Gauges", "GaugedMemory"]

# Seconds between two readings: the least number where memory may run out, the least number elsewhere, and the most.
SHORTEST, SHORTEST_OF_SIZE, LONGEST = 0.02, 0.1, 1.0


class GaugedMemory(Protocol):
    """A memory whose size is polled."""

    @property
    def limit(self) -> int | None:
        """The most bytes that this memory can have; None if there is no limit."""

    @property
    def kills(self) -> int | None:
        """The number of processes that the kernel has killed because of this limit; None if it is unknown."""

    def read(self, time: float, fired: frozenset[str] = frozenset()) -> Reading:
        """Return the memory's current size. ``fired``: the names of the wakers that fired since the last reading.
        Raises OSError if the memory no longer exists."""


@dataclass(frozen=True)
class GaugeReading:
    """The result of one poll: the causes to act, and whether the kernel has killed a process since the last poll."""

    causes: Sequence[Cause]
    killed: bool


@dataclass
class Gauge:
    """A memory to poll, the conditions on its size, and the wakers that end a wait early.

    ``group``: the control group's name, "" for the machine, None for a process; ``shortest``: the least seconds between
    two readings; ``due``: when to read next (``time.monotonic``); ``fired``: the names of the wakers that fired since
    the last reading; ``last``: the last reading.
    """

    memory: GaugedMemory
    triggers: Sequence[Trigger]
    wakers: Sequence[Waker] = ()
    group: str | None = None
    shortest: float = SHORTEST
    due: float = 0.0
    fired: set[str] = field(default_factory=set)
    last: Reading | None = None

    def look(self, now: float) -> GaugeReading:
        """Read the memory, check the conditions, and set when to read next. Raises OSError if the memory no longer
        exists."""
        self.last = reading = self.memory.read(now, frozenset(self.fired))
        self.fired.clear()
        found = [cause for trigger in self.triggers if (cause := trigger.judge(reading)) is not None]
        patience = [trigger.patience(reading) for trigger in self.triggers]
        # A condition that is met stays met, so the next reading is not urgent.
        self.due = now + (LONGEST if found else max(self.shortest, min([LONGEST, *patience])))
        return GaugeReading(found, "oom_kill" in reading.fired)


class Gauges:
    """A collection of gauges by key. ``wait`` waits until one of them is due."""

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}
        self._poll = select.poll()
        self._wakers: dict[int, tuple[str, Waker]] = {}

    def __iter__(self) -> Iterator[Gauge]:
        return iter(self._gauges.values())

    def __contains__(self, key: str) -> bool:
        return key in self._gauges

    def add(self, key: str, make: Callable[[], Gauge]) -> None:
        """Make a gauge under this key, unless there is one already. Raises OSError if the gauge's memory cannot be
        read.
        """
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
        """Make the gauges with these keys due now, so that ``look`` reads them next."""
        for key in self._gauges.keys() & set(keys):
            self._gauges[key].due = 0.0

    def wait(self, until: float, also: Collection[int] = ()) -> set[int]:
        """Wait until a gauge is due, a waker fires, one of the descriptors ``also`` is readable, or the time is
        ``until`` (``time.monotonic``). Return the descriptors in ``also`` that are readable."""
        next_one = min([until, *(gauge.due for gauge in self)])
        for descriptor in also:
            self._poll.register(descriptor, select.POLLIN)
        milliseconds = min(LONGEST_WAIT, max(0.0, 1000 * (next_one - time.monotonic())))
        ready = {descriptor for descriptor, _events in self._poll.poll(milliseconds)}
        for descriptor in also:
            self._poll.unregister(descriptor)
        for descriptor in ready.difference(also):
            key, waker = self._wakers[descriptor]
            waker.clear()
            self._gauges[key].fired.add(waker.name)
        return ready.intersection(also)

    def look(self) -> Iterator[tuple[str, Gauge, GaugeReading | None]]:
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
