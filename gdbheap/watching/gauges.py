"""What is read again and again, and what ends the wait until then.

Whatever can wake us does; beside that each memory is read again before it could come to its bound at the speed at which
a kernel hands out pages, between twenty milliseconds (a tenth of a second, where no limit is near) and a second later.
"""

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

# Seconds from one reading to the next. Only where memory may run out does it matter to be there within milliseconds.
SHORTEST, SHORTEST_OF_SIZE, LONGEST = 0.02, 0.1, 1.0


class Memory(Protocol):
    """What a gauge reads."""

    @property
    def limit(self) -> int | None:
        """What there can be, in bytes; None without a limit."""

    def read(self, time: float, fired: frozenset[str] = frozenset()) -> Reading:
        """The memory now. Raises OSError when there is none any more."""


@dataclass(frozen=True)
class Found:
    """What came of a reading: why to act, and whether the kernel has killed a process since the last one."""

    causes: Sequence[Cause]
    killed: bool


@dataclass
class Gauge:
    """Some memory, what is waited for there, and what may wake us. ``group``: its name, "" for the machine, None for a
    process."""

    memory: Memory
    triggers: Sequence[Trigger]
    wakers: Sequence[Waker] = ()
    group: str | None = None
    shortest: float = SHORTEST
    due: float = 0.0
    fired: set[str] = field(default_factory=set)

    def look(self, now: float) -> Found:
        """Raises OSError when there is nothing to read any more."""
        reading = self.memory.read(now, frozenset(self.fired))
        self.fired.clear()
        found = [cause for trigger in self.triggers if (cause := trigger.judge(reading)) is not None]
        patience = [trigger.patience(reading) for trigger in self.triggers]
        # What has come to pass would be found again and again.
        self.due = now + (LONGEST if found else max(self.shortest, min([LONGEST, *patience])))
        return Found(found, "oom_kill" in reading.fired)


class Gauges:
    """Gauges by their keys."""

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}
        self._poll = select.poll()
        self._wakers: dict[int, tuple[str, Waker]] = {}

    def __iter__(self) -> Iterator[Gauge]:
        return iter(self._gauges.values())

    def __contains__(self, key: str) -> bool:
        return key in self._gauges

    def add(self, key: str, make: Callable[[], Gauge]) -> None:
        """Make a gauge where there is none yet. Raises OSError where its memory cannot be read."""
        if key in self._gauges:
            return
        self._gauges[key] = gauge = make()
        for waker in gauge.wakers:
            self._wakers[waker.descriptor] = (key, waker)
            self._poll.register(waker.descriptor, waker.mask)

    def drop(self, keys: Iterable[str]) -> None:
        """Read these no more; harmless for those that there are not."""
        for key in list(keys):
            gauge = self._gauges.pop(key, None)
            for waker in gauge.wakers if gauge else ():
                del self._wakers[waker.descriptor]
                with suppress(KeyError, OSError):
                    self._poll.unregister(waker.descriptor)

    def keep(self, keys: Iterable[str]) -> None:
        """Drop all but these."""
        self.drop(self._gauges.keys() - set(keys))

    def hurry(self, keys: Iterable[str]) -> None:
        """Have these read next."""
        for key in self._gauges.keys() & set(keys):
            self._gauges[key].due = 0.0

    def wait(self, until: float, also: int | None = None) -> bool:
        """Until one is due, or wakes us, or the descriptor ``also`` has something to say, or the clock
        (``time.monotonic``) says ``until``; whether it was ``also``."""
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
        """Those that were due or woke us, with what was found; None: there is nothing to read any more."""
        for key, gauge in list(self._gauges.items()):
            now = time.monotonic()
            if not gauge.fired and gauge.due > now:
                continue
            try:
                yield key, gauge, gauge.look(now)
            except OSError:
                self.drop([key])
                yield key, gauge, None
