"""Threads that were caught at places in their process's code, or at system calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from gdbheap.targets.code_places import CodePlace

__all__ = ["MAX_STAND", "Follower", "CaughtProcess", "Hit"]

# The most seconds for which a caught thread is stopped, even if gdbheap dies meanwhile.
MAX_STAND = 5.0
# A terminal's Ctrl-C also reaches the started program, which then takes a moment to end.
PARTING_SECONDS = 1.0


class Hit(Protocol):
    """A thread that was caught at a place in the code, or at a system call."""

    @property
    def pid(self) -> int:
        """The id of the thread's process."""

    @property
    def tid(self) -> int:
        """The id of the thread."""

    @property
    def place(self) -> int | None:
        """The index of the place in ``CaughtProcess.what``; None if the process has begun to run another program."""

    @property
    def registers(self) -> Sequence[int]:
        """The thread's registers at the moment when it was caught, in the order of ``machine.notes``."""

    @property
    def stack(self) -> bytes | None:
        """The bytes at the thread's stack pointer; None if the thread is still stopped, or if no stacks were
        requested.
        """

    @property
    def doubtful(self) -> bool:
        """Whether the call ran while the mappings were read, so that ``Follower.maps`` may lack its effect."""


class Follower(Protocol):
    """The object that catches the threads: the native follower, or gdb's."""

    def next(self, seconds: float) -> Hit | None:
        """Return the next caught thread, which stays stopped until this method is called again.

        Return None if no thread was caught within ``seconds``, or if no thread will be caught any more (see
        ``finish``). Raises KeyboardInterrupt.
        """

    def end(self) -> None:
        """Restore the process's code and release the process. A started program runs on."""

    @property
    def finish(self) -> str:
        """The reason why no more threads will be caught. "gone": the process ended. "exec": it runs a new program.
        "asked": the follower was asked to end.

        The value is "" while threads may still be caught.
        """

    @property
    def descriptor(self) -> int:
        """A descriptor for poll(2), readable once a thread was caught; -1 if there is none."""

    @property
    def hits(self) -> int:
        """How many times a thread was caught so far."""

    @property
    def lost(self) -> int:
        """How many calls are known to be lost. The number is final once following has ended."""

    @property
    def stood(self) -> float:
        """The seconds for which threads were stopped, in total."""

    @property
    def held(self) -> float:
        """The seconds for which the whole process was stopped, at the start and at the end."""

    @property
    def maps(self) -> tuple[bytes, bytes]:
        """The text of ``/proc/PID/maps`` at the start and, once following has ended, at the end; empty if the process
        is gone.
        """

    @property
    def status(self) -> int | None:
        """The status with which a started program ended, as from os.wait."""


class CaughtProcess(NamedTuple):
    """A process whose threads are being caught.

    ``what``: for each place, the number of its system call, or the name of its function.
    ``refused``: the places that cannot be watched, each with the reason.
    ``stay``: a function that leaves the process stopped afterwards, with the last caught thread at its place; or None.
    ``longest_wait``: the most seconds to wait for a thread at a time, so that other events are noticed.
    ``wait``: a function that waits until a program that gdbheap started has ended, with all its descendants. It waits
    for at most the given seconds, and returns whether they have ended. None for any other process.
    """

    follower: Follower
    what: Sequence[int | str]
    refused: Sequence[tuple[CodePlace, str]]
    stay: Callable[[], None] | None = None
    longest_wait: float = 0.2
    wait: Callable[[float], bool] | None = None

    def seen(self, duration: float | None, is_over: Callable[[], bool]) -> Iterator[Hit]:
        """Yield the caught threads as they come.

        The iteration ends after ``duration`` seconds (None: no limit), when no more threads will come, or once
        ``is_over`` returns True.
        """
        end = None if duration is None else time.monotonic() + duration
        while not is_over():
            left = self.longest_wait if end is None else min(self.longest_wait, end - time.monotonic())
            if left <= 0:
                return
            hit = self.follower.next(left)
            if hit is not None:
                yield hit
            elif self.follower.finish:
                return

    def end(self, is_told: Callable[[], bool]) -> None:
        """Release the process.

        If gdbheap started the program, first wait until it has ended. Once ``is_told`` returns True, wait for only
        PARTING_SECONDS more. Raises KeyboardInterrupt.
        """
        was_told = False
        while self.wait is not None and not was_told:
            was_told = is_told()
            if self.wait(PARTING_SECONDS if was_told else self.longest_wait):
                break
        self.follower.end()

    def place(self, hit: Hit) -> int | str | None:
        """Return the system call or function at which a thread was caught; None if the process runs another program."""
        return None if hit.place is None else self.what[hit.place]
