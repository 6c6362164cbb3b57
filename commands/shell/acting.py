"""Run work in a child process, because another user can interfere.

With that user's rights, no link leads root to where the user may not go. A child that he stops, or that waits for a
file that never answers, is ended and left alone."""

from __future__ import annotations

import os
import pwd
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from gdbheap.errors import GdbheapError, one_line

__all__ = ["apart", "as_user"]

FAILED = 1
# Seconds that the work may take, and that its end may take.
SECONDS, PARTING_SECONDS = 10.0, 1.0
PART = 1 << 16


def as_user(uid: int, act: Callable[[], str]) -> str:
    """Return what ``act`` returns in a child with the rights of the user ``uid`` and no others.

    ``act`` must import nothing, because the child may not be able to. Raises GdbheapError, also if ``act`` does, or if
    it takes too long."""
    return _in_child(f"what was done as user {uid}", lambda: _become(uid), act)


def apart(what: str, act: Callable[[], str]) -> str:
    """Return what ``act`` returns in a child with our own rights. ``what``: its name in messages. Raises like
    ``as_user``."""
    return _in_child(what, lambda: None, act)


def _in_child(what: str, become: Callable[[], None], act: Callable[[], str]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _act(what, become, act, writing)
    os.close(writing)
    try:
        heard = _heard(reading)
        status = None if heard is None else _status(child)
    except BaseException:
        _end(child)
        raise
    finally:
        os.close(reading)
    if heard is None or status is None:
        _end(child)
        why = "somebody stopped it, or nobody answers for a file on its way"
        raise GdbheapError(f"{what} took longer than {SECONDS:g} s, and was ended: {why}")
    said = heard.decode("utf-8", "surrogateescape")
    if status:
        error = GdbheapError(said or f"{what} ended with status {status}")
        error.status = max(status, FAILED)
        raise error
    return said


def _heard(reading: int) -> bytes | None:
    """Return all that a child writes until it closes the pipe; None if that takes too long."""
    said, end, poll = b"", time.monotonic() + SECONDS, select.poll()
    poll.register(reading, select.POLLIN)
    while poll.poll(max(0.0, 1000 * (end - time.monotonic()))):
        part = os.read(reading, PART)
        if not part:
            return said
        said += part
    return None


def _status(child: int) -> int | None:
    """Return the exit status of a child that is ending; None if it does not end."""
    end = time.monotonic() + PARTING_SECONDS
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return None


def _end(child: int) -> None:
    """Kill a child, even a stopped one; a child that the kernel does not end is left alone."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        _status(child)


def _act(what: str, become: Callable[[], None], act: Callable[[], str], writing: int) -> NoReturn:
    """Run the child: work, report the result, and exit, without returning into the parent's code."""
    status = FAILED
    try:
        become()
        said, status = act(), 0
    except GdbheapError as error:
        said, status = str(error), error.status
    except BaseException as error:
        said = f"{what} failed: {one_line(error)}"
    try:
        os.write(writing, said.encode("utf-8", "surrogateescape"))
    finally:
        os._exit(status)


def _become(uid: int) -> None:
    """Take on the user's groups and id, permanently. Raises OSError."""
    try:
        entry = pwd.getpwuid(uid)
        group = entry.pw_gid
        os.initgroups(entry.pw_name, group)
    except KeyError:
        group = uid
        os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(uid, uid, uid)
