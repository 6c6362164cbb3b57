"""Threads that were caught at places in their process's code, or at system calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from gdbheap.targets.code_places import Place

__all__ = ["MAX_STAND", "Follower", "Following", "Hit"]

# The most seconds for which a caught thread is stopped, even if gdbheap dies meanwhile.
MAX_STAND = 5.0
# A terminal's Ctrl-C also reaches the started program, which then takes a moment to end.
PARTING_SECONDS = 1.0


class Hit(Protocol):
    """A thread that was caught."""

    @property
    def pid(self) -> int:
        """The id of its process."""

    @property
    def tid(self) -> int:
        """The id of the thread."""

    @property
    def place(self) -> int | None:
        """The index into ``Following.what``; None: the process runs another program from now on."""

    @property
    def registers(self) -> Sequence[int]:
        """Its registers at the place (``struct user_regs_struct``)."""

    @property
    def stack(self) -> bytes | None:
        """The bytes at its stack pointer at that time; None if it is still stopped there, or stacks were not
        requested."""

    @property
    def doubtful(self) -> bool:
        """Whether ``Follower.maps`` may or may not reflect its call, as it ran while they were read."""


class Follower(Protocol):
    """Catches the threads: the native follower, or gdb."""

    def next(self, seconds: float) -> Hit | None:
        """Return the next caught thread, which stays stopped until this is called again.

        None if none came within ``seconds``, or none will come (see ``finish``). Raises KeyboardInterrupt.
        """

    def end(self) -> None:
        """Restore the code and let the process go. A started program runs on."""

    @property
    def finish(self) -> str:
        """Why no thread will come any more: "gone", "exec" or "asked"; "" while one may come."""

    @property
    def descriptor(self) -> int:
        """The descriptor that poll(2) reports once a thread was caught; -1 without one."""

    @property
    def hits(self) -> int:
        """How many threads were caught."""

    @property
    def lost(self) -> int:
        """How many calls were lost, as far as known; final once it has ended."""

    @property
    def stood(self) -> float:
        """For how many seconds threads were stopped, in total."""

    @property
    def held(self) -> float:
        """For how many seconds the whole process was stopped, at the start and at the end."""

    @property
    def maps(self) -> tuple[bytes, bytes]:
        """``/proc/PID/maps`` at the start and, once it has ended, at the end; empty if the process is gone."""

    @property
    def status(self) -> int | None:
        """The status with which a started program ended, as from os.wait."""


class Following(NamedTuple):
    """Threads that are being caught.

    ``what`` names the places: the number of a system call, or a function. ``refused`` are the places that cannot be
    watched, with the reasons. ``stay``, if the process is to stay stopped afterwards, leaves the last caught thread
    there, as if it had been stopped at that place. ``longest_wait``: the most seconds of one wait for a thread, so that
    other events are noticed. ``wait``, if a program was started: waits at most that many seconds for its end and that
    of all that it started, and returns whether they ended.
    """

    follower: Follower
    what: Sequence[int | str]
    refused: Sequence[tuple[Place, str]]
    stay: Callable[[], None] | None = None
    longest_wait: float = 0.2
    wait: Callable[[float], bool] | None = None

    def seen(self, duration: float | None, is_over: Callable[[], bool]) -> Iterator[Hit]:
        """Yield the threads as they come.

        It ends after ``duration`` seconds (None: when nothing more comes), or once ``is_over`` returns True.
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
        """Let the process go. A started program is waited for until ``is_told`` returns True, then a moment more.

        Raises KeyboardInterrupt.
        """
        was_told = False
        while self.wait is not None and not was_told:
            was_told = is_told()
            if self.wait(PARTING_SECONDS if was_told else self.longest_wait):
                break
        self.follower.end()

    def place(self, hit: Hit) -> int | str | None:
        """Return what a thread did; None: it runs another program from now on."""
        return None if hit.place is None else self.what[hit.place]
