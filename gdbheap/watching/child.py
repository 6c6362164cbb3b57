"""A look in a child process of ours, which says through a pipe what came of it.

What the child needs of memory is given back when it ends, and whatever befalls it, the waiting goes on."""

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

# A look that takes longer than this hangs: computing from a copy goes on after the process was let go.
LOOK_SECONDS = 900.0
# Where processes of several users are watched, a look at one keeps those of the others waiting: it has a time that only
# memory makes longer.
BESIDE_SECONDS, SECONDS_OF_GIB, MOST_BESIDE = 10.0, 5.0, 60.0

# gdbheap lets a process go when it is asked to end; a child is given this long for that.
PARTING_SECONDS = 5.0
# One that waits for so long in the kernel, deaf to signals, is not waited for: its first thread, or others once that
# one has ended.
DEAF_SECONDS = 0.5
DEAF = (b"D", b"Z")
PART = 1 << 16
USUAL_PRIORITY = os.getpriority(os.PRIO_PROCESS, 0)
LOST = "gdbheap was killed meanwhile, or failed"


def look_seconds(size: int, users: int) -> float:
    """Return how many seconds a look at a process may take that has ``size`` bytes of RSS, where processes of so many
    users are watched."""
    return LOOK_SECONDS if users < 2 else min(BESIDE_SECONDS + SECONDS_OF_GIB * size / (1 << 30), MOST_BESIDE)


def too_long(seconds: float) -> str:
    """Return the reason why there is no look, after that time."""
    if seconds >= LOOK_SECONDS:
        return "it took too long"
    why = "processes of other users wait for it (--user=USER watches those of one)"
    return f"it took longer than {seconds:.0f} s, and {why}"


class Child:
    """A child that does ``work``, whose result can be written as JSON. Raises OSError where none can be started."""

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
        """Read what there is to read, waiting for something; whether that was all."""
        part = os.read(self.descriptor, PART)
        self._said += part
        return not part

    def wait(self, seconds: float) -> bool:
        """Until it has said all; False when it takes longer."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        while poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            if self.hear():
                return True
        return False

    def result(self) -> dict[str, Any] | None:
        """What it said, once that is all; None where it ended without."""
        with suppress(ValueError):
            found: dict[str, Any] = json.loads(self._said)
            return found
        return None

    def end(self) -> None:
        """Wait for its end; where it said nothing it is asked to end, then made to. What it holds runs on then.
        One that waits in the kernel for what nobody answers is left alone."""
        os.close(self.descriptor)
        with suppress(OSError):
            # One that has said all is ending anyway.
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
    """What others do is less urgent than the wait, and the look when the moment has come."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, USUAL_PRIORITY)


def _be_child(work: Callable[[], dict[str, Any]], writing: int, parent: int) -> NoReturn:
    """Do it, say what came of it, and end without touching what belongs to the parent. It is asked to end when the
    parent has ended: a look that nobody waits for would keep the process stopped."""
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
