"""Threads that are seen to come by places in their process's code, or to make system calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from gdbheap.targets.code_places import Place

__all__ = ["MAX_STAND", "Follower", "Following", "Hit"]

# For how long a thread stands where it was seen at most, whatever becomes of us meanwhile.
MAX_STAND = 5.0
# A terminal's Ctrl-C goes to a program that was started too, which then takes a moment to end.
PARTING_SECONDS = 1.0


class Hit(Protocol):
    """A thread that was seen."""

    @property
    def pid(self) -> int:
        """Its process."""

    @property
    def tid(self) -> int:
        """Its own id."""

    @property
    def place(self) -> int | None:
        """Where, as an index of ``Following.what``; None: the process runs another program from now on."""

    @property
    def registers(self) -> Sequence[int]:
        """As it had them there (``struct user_regs_struct``)."""

    @property
    def stack(self) -> bytes | None:
        """The bytes at its stack pointer as they were there; None: it stands there still, or nobody wants them."""

    @property
    def doubtful(self) -> bool:
        """Whether ``Follower.maps`` may have what it did, or not: it ran while they were read."""


class Follower(Protocol):
    """Who sees the threads: the native one, or gdb."""

    def next(self, seconds: float) -> Hit | None:
        """The next thread that is seen, which stands until this is called again; None where there was none for so long,
        or none will come (``finish`` says why). Raises KeyboardInterrupt."""

    def end(self) -> None:
        """Put the code back and let the process go; a program that was started runs on."""

    @property
    def finish(self) -> str:
        """Why no thread will come any more: "gone", "exec" or "asked"; "" while one may."""

    @property
    def descriptor(self) -> int:
        """What poll(2) reports once a thread was seen; -1 where nothing does."""

    @property
    def hits(self) -> int:
        """How many threads came."""

    @property
    def lost(self) -> int:
        """How many calls were lost on the way, as far as it is known once it has ended."""

    @property
    def stood(self) -> float:
        """For how many seconds threads stood, all together."""

    @property
    def held(self) -> float:
        """For how many seconds the whole process stood, at the beginning and at the end."""

    @property
    def maps(self) -> tuple[bytes, bytes]:
        """``/proc/PID/maps`` at the beginning and, once it has ended, at the end; empty where the process is gone."""

    @property
    def status(self) -> int | None:
        """How a program that was started ended, as os.wait gives it."""


class Following(NamedTuple):
    """Threads that are seen. ``what`` names the places: the number of a system call, or a function; ``refused`` are the
    places where they cannot be seen, with the reasons. ``stay``, where the process is to stand afterwards, leaves the
    thread that was seen last there, as if it had been stopped at that place. ``longest_wait``: for how many seconds to
    wait for one thread at most, so that what comes from elsewhere is noticed. ``wait``, where a program was started:
    wait for its end and that of all that it started, for so many seconds at most, and tell whether that came."""

    follower: Follower
    what: Sequence[int | str]
    refused: Sequence[tuple[Place, str]]
    stay: Callable[[], None] | None = None
    longest_wait: float = 0.2
    wait: Callable[[float], bool] | None = None

    def seen(self, duration: float | None, is_over: Callable[[], bool]) -> Iterator[Hit]:
        """The threads as they come, for so many seconds (None: until nothing more comes), until ``is_over`` says so."""
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
        """Let the process go. A program that was started is waited for, until ``is_told`` says that it is not: then for
        a moment more. Raises KeyboardInterrupt."""
        was_told = False
        while self.wait is not None and not was_told:
            was_told = is_told()
            if self.wait(PARTING_SECONDS if was_told else self.longest_wait):
                break
        self.follower.end()

    def place(self, hit: Hit) -> int | str | None:
        """What a thread did; None: it runs another program from now on."""
        return None if hit.place is None else self.what[hit.place]
