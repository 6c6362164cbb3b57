"""Do work in a child process, which reports its result through a pipe.

The child's memory is returned when the child ends. A failure of the child does not end the watch.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from gdbheap._native import end_with_parent

__all__ = [
    "LOST",
    "PARTING_SECONDS",
    "Child",
    "EndingChildren",
    "read_seconds",
    "too_long",
    "restore_priority",
    "wait_for_end",
]

# A read that takes more seconds than this hangs. The time includes the work on a copy after the process was released.
READ_SECONDS = 900.0
# While one process is read, the others wait. So if processes of several users are watched, the time for a read is
# limited: to the first number of seconds, plus the second number for each GiB of memory, but at most to the third
# number.
BESIDE_SECONDS, SECONDS_OF_GIB, MOST_BESIDE = 10.0, 5.0, 60.0

# When gdbheap is asked to end, it first releases the process that it stopped. A child has this many seconds to do so.
PARTING_SECONDS = 5.0
# gdbheap no longer waits for a child that reacts to no signal, and has waited in the kernel for this many seconds.
#
# Its first thread waits (D), or has ended (Z) while other threads wait.
DEAF_SECONDS = 0.5
DEAF = (b"D", b"Z")
OVER = (b"Z", b"X", b"")
PART = 1 << 16
USUAL_PRIORITY = os.getpriority(os.PRIO_PROCESS, 0)
LOST = "the gdbheap process that read the heap was killed, or failed"


def read_seconds(size: int, users: int) -> float:
    """Return for how many seconds a process may be read.

    ``size``: its RSS in bytes; ``users``: how many users' processes are watched."""
    return READ_SECONDS if users < 2 else min(BESIDE_SECONDS + SECONDS_OF_GIB * size / (1 << 30), MOST_BESIDE)


def too_long(seconds: float) -> str:
    """Return the reason to print for a read that was ended after this many seconds."""
    if seconds >= READ_SECONDS:
        return "reading took too long"
    why = "processes of other users wait meanwhile (--user=USER watches only the processes of one user)"
    return f"reading took longer than {seconds:.0f} s, and {why}"


class Child:
    """A child process that calls ``work`` and reports its result as JSON.

    Raises OSError if no process can be started.
    """

    def __init__(self, work: Callable[[], dict[str, Any]]) -> None:
        self.descriptor, writing = os.pipe()
        self._said = b""
        parent = os.getpid()
        try:
            self.pid = os.fork()
            if self.pid == 0:
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
        """Return the result that the child has written; None if the child ended without a result."""
        with suppress(ValueError):
            found: dict[str, Any] = json.loads(self._said)
            return found
        return None

    def ask_to_end(self) -> None:
        """Ask the child to end. If it had stopped a process, that process runs on."""
        os.close(self.descriptor)
        # A child that has written its result is about to end.
        if not self._said:
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def is_gone(self) -> bool:
        """Return whether the child has ended, without waiting."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True

    def end(self) -> None:
        """Ask the child to end, kill it if it does not, and wait until it has ended.

        A child that waits in the kernel without end is abandoned.
        """
        self.ask_to_end()
        self.finish()

    def finish(self) -> None:
        """Wait until a child that was asked to end has ended, and kill it if it does not."""
        with suppress(OSError):
            if not self._has_ended(PARTING_SECONDS):
                self.kill()
                self._has_ended(PARTING_SECONDS)

    def _signal(self, number: int) -> None:
        with suppress(OSError):
            os.kill(self.pid, number)

    def _has_ended(self, seconds: float) -> bool:
        heard = time.monotonic()
        deadline = heard + seconds
        while not self.is_gone():
            now = time.monotonic()
            if _state(self.pid) not in DEAF:
                heard = now
            if now >= min(deadline, heard + DEAF_SECONDS):
                return False
            time.sleep(0.001)
        return True


class EndingChildren:
    """The child processes that were asked to end. gdbheap does not wait for them before ``end``."""

    def __init__(self) -> None:
        self._children: dict[Child, float] = {}

    @property
    def pids(self) -> list[int]:
        """The ids of the children that have not ended yet."""
        return [child.pid for child in self._children]

    def add(self, child: Child) -> None:
        """Ask a child to end. If it has not ended after PARTING_SECONDS, ``turn`` kills it."""
        child.ask_to_end()
        self._children[child] = time.monotonic() + PARTING_SECONDS

    def turn(self) -> None:
        """Forget the children that have ended, and kill those whose time to end is over."""
        now = time.monotonic()
        self._children = {child: deadline for child, deadline in self._children.items() if not child.is_gone()}
        for child, deadline in self._children.items():
            if now >= deadline:
                child.kill()

    def end(self) -> None:
        """Wait until all children have ended. Kill those that do not end."""
        for child in self._children:
            child.finish()
        self._children.clear()


def wait_for_end(pids: Sequence[int], seconds: float) -> None:
    """Wait until these processes have ended, but at most this many seconds. They may be children of any process."""
    deadline = time.monotonic() + seconds
    while any(_state(pid) not in OVER for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.001)


def _state(pid: int) -> bytes:
    """Return the letter of a process's state; b"" if there is no such process."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stream:
        return stream.read(PART).rpartition(b") ")[2][:1]
    return b""


def restore_priority() -> None:
    """Restore the priority that gdbheap had at its start. Only the wait, and a read when a condition is met, need the
    high priority."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, USUAL_PRIORITY)


def _be_child(work: Callable[[], dict[str, Any]], writing: int, parent: int) -> NoReturn:
    """Call ``work``, write its result, and exit without touching anything that belongs to the parent.

    The child gets SIGTERM if the parent ends. Otherwise a watched process could stay stopped although the result is no
    longer needed.
    """
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
