"""A heap read in a child process, which reports its result through a pipe.

The child's memory is returned when it ends, and the wait goes on whatever happens to it."""

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

# A read that takes longer than this hangs. It includes the work on a copy, after the process was released.
LOOK_SECONDS = 900.0
# When processes of several users are watched, reading one keeps the others waiting: so the time is limited, and grows
# only with the size of memory.
BESIDE_SECONDS, SECONDS_OF_GIB, MOST_BESIDE = 10.0, 5.0, 60.0

# gdbheap releases a process when it is asked to end; a child has this long for that.
PARTING_SECONDS = 5.0
# A child that waits in the kernel for this long, deaf to signals, is not waited for. That may be its first thread, or
# other threads after the first has ended.
DEAF_SECONDS = 0.5
DEAF = (b"D", b"Z")
PART = 1 << 16
USUAL_PRIORITY = os.getpriority(os.PRIO_PROCESS, 0)
LOST = "gdbheap was killed meanwhile, or failed"


def look_seconds(size: int, users: int) -> float:
    """Return how many seconds a read may take of a process with ``size`` bytes of RSS, when processes of ``users``
    users are watched."""
    return LOOK_SECONDS if users < 2 else min(BESIDE_SECONDS + SECONDS_OF_GIB * size / (1 << 30), MOST_BESIDE)


def too_long(seconds: float) -> str:
    """Return the reason for a read that was ended after that many seconds."""
    if seconds >= LOOK_SECONDS:
        return "it took too long"
    why = "processes of other users wait for it (--user=USER watches those of one)"
    return f"it took longer than {seconds:.0f} s, and {why}"


class Child:
    """A child process that runs ``work`` and reports its result as JSON. Raises OSError if none can be started."""

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
        """Read from the child's pipe, waiting for data; return whether that was the end."""
        part = os.read(self.descriptor, PART)
        self._said += part
        return not part

    def wait(self, seconds: float) -> bool:
        """Wait until the child has written its whole result; return False if that takes longer."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        while poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            if self.hear():
                return True
        return False

    def result(self) -> dict[str, Any] | None:
        """Return the child's result after its end; None if it ended without one."""
        with suppress(ValueError):
            found: dict[str, Any] = json.loads(self._said)
            return found
        return None

    def end(self) -> None:
        """Wait for the child's end. Without a result it is asked to end, then killed; a process that it holds then runs
        on. A child that waits in the kernel for something that never comes is left alone."""
        os.close(self.descriptor)
        with suppress(OSError):
            # A child that has written is ending anyway.
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
    """Restore the usual priority: only the wait and the read at the moment of the event are urgent."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, USUAL_PRIORITY)


def _be_child(work: Callable[[], dict[str, Any]], writing: int, parent: int) -> NoReturn:
    """Run the work, write its result, and exit without touching what belongs to the parent.

    The child gets SIGTERM if the parent ends: otherwise it would keep the process stopped for nobody."""
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
