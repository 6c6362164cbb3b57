"""Read a heap in a child process, which reports its result through a pipe.

The child's memory is returned when it ends, and gdbheap goes on waiting whatever happens to the child."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from gdbheap._native import end_with_parent

__all__ = ["LOST", "Child", "look_seconds", "too_long", "usually"]

# A read that takes more seconds than this hangs. The time includes the work on a copy after the process was released.
LOOK_SECONDS = 900.0
# While one process is read, the others wait. So if processes of several users are watched, the time for a read is
# limited: to the first number of seconds, plus the second number for each GiB of memory, but at most to the third
# number.
BESIDE_SECONDS, SECONDS_OF_GIB, MOST_BESIDE = 10.0, 5.0, 60.0

# When gdbheap is asked to end, it first releases the process that it stopped. A child has this many seconds to do so.
PARTING_SECONDS = 5.0
# If a child has waited in the kernel for this long and reacted to no signal, it is no longer waited for. Its first
# thread waits (D), or has ended (Z) while other threads wait.
DEAF_SECONDS = 0.5
DEAF = (b"D", b"Z")
PART = 1 << 16
USUAL_PRIORITY = os.getpriority(os.PRIO_PROCESS, 0)
LOST = "the gdbheap process that read the heap was killed, or failed"


def look_seconds(size: int, users: int) -> float:
    """Return for how many seconds a process may be read.

    ``size``: its RSS in bytes; ``users``: how many users' processes are watched."""
    return LOOK_SECONDS if users < 2 else min(BESIDE_SECONDS + SECONDS_OF_GIB * size / (1 << 30), MOST_BESIDE)


def too_long(seconds: float) -> str:
    """Return the reason to show for a read that was ended after this many seconds."""
    if seconds >= LOOK_SECONDS:
        return "reading took too long"
    why = "processes of other users wait meanwhile (--user=USER watches only the processes of one user)"
    return f"reading took longer than {seconds:.0f} s, and {why}"


class Child:
    """A child process that calls ``work`` and reports its result as JSON. Raises OSError if no process can be
    started."""

    def __init__(self, work: Callable[[], dict[str, Any]]) -> None:
        self.descriptor, writing = os.pipe()
        self._said = b""
        parent = os.getpid()
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _be_child(work, writing, parent)
        except OSError:
            os.close(self.descriptor)
            raise
        finally:
            os.close(writing)

    def hear(self) -> bool:
        """Read from the child's pipe; wait for data if there is none. Return whether the pipe has ended."""
        part = os.read(self.descriptor, PART)
        self._said += part
        return not part

    def wait(self, seconds: float) -> bool:
        """Wait until the child has written its whole result. Return False if it has not done so within this many
        seconds."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        while poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            if self.hear():
                return True
        return False

    def result(self) -> dict[str, Any] | None:
        """Return the child's result, once it has written all of it; None if it ended without a result."""
        with suppress(ValueError):
            found: dict[str, Any] = json.loads(self._said)
            return found
        return None

    def end(self) -> None:
        """Wait until the child has ended. A child that has written nothing is asked to end, then killed; a process that
        it had stopped then runs on.

        A child that waits in the kernel for something that never comes is left alone."""
        os.close(self.descriptor)
        with suppress(OSError):
            # A child that has written its result is about to end.
            if not self._said:
                os.kill(self._pid, signal.SIGTERM)
            if not self._has_ended(PARTING_SECONDS):
                os.kill(self._pid, signal.SIGKILL)
                self._has_ended(PARTING_SECONDS)

    def _has_ended(self, seconds: float) -> bool:
        heard = time.monotonic()
        deadline = heard + seconds
        while not os.waitpid(self._pid, os.WNOHANG)[0]:
            now = time.monotonic()
            if not self._is_deaf():
                heard = now
            if now >= min(deadline, heard + DEAF_SECONDS):
                return False
            time.sleep(0.001)
        return True

    def _is_deaf(self) -> bool:
        with open(f"/proc/{self._pid}/stat", "rb") as stream:
            return stream.read(PART).rpartition(b") ")[2][:1] in DEAF


def usually() -> None:
    """Restore the original priority. Only waiting, and reading when a condition is met, are urgent."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, USUAL_PRIORITY)


def _be_child(work: Callable[[], dict[str, Any]], writing: int, parent: int) -> NoReturn:
    """Call ``work``, write its result, and exit without touching anything that belongs to the parent.

    The child gets SIGTERM if the parent ends: otherwise the process would stay stopped although nobody waits for the
    result."""
    status = 1
    try:
        if not end_with_parent(parent, signal.SIGTERM):
            os._exit(status)
        said = json.dumps(work()).encode()
        with os.fdopen(writing, "wb") as stream:
            stream.write(said)
        status = 0
    finally:
        os._exit(status)
