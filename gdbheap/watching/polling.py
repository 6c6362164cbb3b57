"""Poll sizes of memory, and wait until the next poll is due. A wait ends early when a waker reports an event.

Otherwise a memory is read again before it can reach its bound, even at the fastest possible growth. The time between
two polls is at least 20 ms (100 ms if no limit is near), and at most a second.
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

__all__ = ["LONGEST", "SHORTEST_OF_SIZE", "PollResult", "PolledMemory", "PolledMemories", "SizedMemory"]

# Seconds between two readings: the least number where memory may run out, the least number elsewhere, and the most.
SHORTEST, SHORTEST_OF_SIZE, LONGEST = 0.02, 0.1, 1.0


class SizedMemory(Protocol):
    """The memory of a process, of a control group or of the machine, whose size is polled."""

    @property
    def limit(self) -> int | None:
        """The largest number of bytes that this memory can have; None if there is no limit."""

    @property
    def kills(self) -> int | None:
        """The number of processes that the kernel has killed because of this limit; None if it is unknown."""

    def read(self, time: float, fired: frozenset[str] = frozenset()) -> Reading:
        """Return the memory's current size. ``fired``: the names of the wakers that fired since the last reading.
        Raises OSError if the memory no longer exists."""


@dataclass(frozen=True)
class PollResult:
    """The result of one poll.

    ``causes``: the conditions that are met and require an action; empty if none is met.
    ``killed``: whether the kernel has killed a process since the last poll.
    """

    causes: Sequence[Cause]
    killed: bool


@dataclass
class PolledMemory:
    """The memory of a process, a control group or the machine, with the conditions on its size.

    ``wakers``: the descriptors that end a wait early.
    ``group``: the control group's name, "" for the machine, None for a process.
    ``shortest``: the fewest seconds between two readings.
    ``due``: when to read next (``time.monotonic``).
    ``fired``: the names of the wakers that fired since the last reading.
    ``last``: the last reading, None before the first.
    """

    memory: SizedMemory
    triggers: Sequence[Trigger]
    wakers: Sequence[Waker] = ()
    group: str | None = None
    shortest: float = SHORTEST
    due: float = 0.0
    fired: set[str] = field(default_factory=set)
    last: Reading | None = None

    def read(self, now: float) -> PollResult:
        """Read the memory, check the conditions, and set when to read next. Raises OSError if the memory no longer
        exists."""
        self.last = reading = self.memory.read(now, frozenset(self.fired))
        self.fired.clear()
        found = [cause for trigger in self.triggers if (cause := trigger.judge(reading)) is not None]
        patience = [trigger.patience(reading) for trigger in self.triggers]
        # A condition that is met stays met, so the next reading is not urgent.
        self.due = now + (LONGEST if found else max(self.shortest, min([LONGEST, *patience])))
        return PollResult(found, "oom_kill" in reading.fired)


class PolledMemories:
    """The polled memories of processes, of control groups and of the machine, each under a key. ``wait`` waits until it
    is time to read one of them."""

    def __init__(self) -> None:
        self._polled: dict[str, PolledMemory] = {}
        self._poll = select.poll()
        self._wakers: dict[int, tuple[str, Waker]] = {}

    def __iter__(self) -> Iterator[PolledMemory]:
        return iter(self._polled.values())

    def __contains__(self, key: str) -> bool:
        return key in self._polled

    def with_keys(self, keys: Iterable[str]) -> list[PolledMemory]:
        """Return the polled memories with these keys, in the order in which they were added. Unknown keys are
        ignored."""
        chosen = set(keys)
        return [polled for key, polled in self._polled.items() if key in chosen]

    def add(self, key: str, make: Callable[[], PolledMemory]) -> None:
        """Poll a memory under this key, unless there is one already. Raises OSError if it cannot be read."""
        if key in self._polled:
            return
        self._polled[key] = polled = make()
        for waker in polled.wakers:
            self._wakers[waker.descriptor] = (key, waker)
            self._poll.register(waker.descriptor, waker.mask)

    def drop(self, keys: Iterable[str]) -> None:
        """Stop polling the memory of these keys. Unknown keys are ignored."""
        for key in list(keys):
            polled = self._polled.pop(key, None)
            for waker in polled.wakers if polled else ():
                del self._wakers[waker.descriptor]
                with suppress(KeyError, OSError):
                    self._poll.unregister(waker.descriptor)

    def keep(self, keys: Iterable[str]) -> None:
        """Stop polling all memory except that of these keys."""
        self.drop(self._polled.keys() - set(keys))

    def hurry(self, keys: Iterable[str]) -> None:
        """Have ``read`` read the memory of these keys next, without waiting for its time."""
        for key in self._polled.keys() & set(keys):
            self._polled[key].due = 0.0

    def wait(self, until: float, also: Collection[int] = ()) -> set[int]:
        """Wait until it is time to read a memory, a waker fires, one of the descriptors ``also`` is readable, or the
        time is ``until`` (``time.monotonic``). Return the descriptors in ``also`` that are readable."""
        next_one = min([until, *(polled.due for polled in self)])
        for descriptor in also:
            self._poll.register(descriptor, select.POLLIN)
        milliseconds = min(LONGEST_WAIT, max(0.0, 1000 * (next_one - time.monotonic())))
        ready = {descriptor for descriptor, _events in self._poll.poll(milliseconds)}
        for descriptor in also:
            self._poll.unregister(descriptor)
        for descriptor in ready.difference(also):
            key, waker = self._wakers[descriptor]
            waker.clear()
            self._polled[key].fired.add(waker.name)
        return ready.intersection(also)

    def read(self) -> Iterator[tuple[str, PolledMemory, PollResult | None]]:
        """Read each memory that is due or whose waker fired. Yield its key, the polled memory, and the result: None if
        the memory no longer exists."""
        for key, polled in list(self._polled.items()):
            now = time.monotonic()
            if not polled.fired and polled.due > now:
                continue
            try:
                yield key, polled, polled.read(now)
            except OSError:
                self.drop([key])
                yield key, polled, None
