"""Do work in a child process, where another user cannot harm it.

The child can run with that user's rights: then a link of the user cannot make root write where the user may not. If the
user stops the child, or if the child waits for a file that never answers, gdbheap abandons it.
"""

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
# The most seconds for the work, and then for the child to end.
SECONDS, PARTING_SECONDS = 10.0, 1.0
PART = 1 << 16


def as_user(uid: int, act: Callable[[], str]) -> str:
    """Return the result of ``act``, called in a child process that has only the rights of the user ``uid``.

    ``act`` must import nothing, because the child may not be allowed to read modules. Raises GdbheapError, also if
    ``act`` does, or if it takes too long."""
    return _in_child(f"the work as user {uid}", lambda: _become(uid), act)


def apart(what: str, act: Callable[[], str]) -> str:
    """Return the result of ``act``, called in a child process with this process's rights.

    ``what``: the name of the work in messages. Raises the errors of ``as_user``.
    """
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
        why = "somebody has stopped the process, or a file system does not respond"
        raise GdbheapError(f"{what} took longer than {SECONDS:g} s, and was ended: {why}")
    said = heard.decode("utf-8", "surrogateescape")
    if status:
        error = GdbheapError(said or f"{what} ended with status {status}")
        error.status = max(status, FAILED)
        raise error
    return said


def _heard(reading: int) -> bytes | None:
    """Return the bytes that a child writes until it closes the pipe; None if that takes longer than SECONDS."""
    said, end, poll = b"", time.monotonic() + SECONDS, select.poll()
    poll.register(reading, select.POLLIN)
    while poll.poll(max(0.0, 1000 * (end - time.monotonic()))):
        part = os.read(reading, PART)
        if not part:
            return said
        said += part
    return None


def _status(child: int) -> int | None:
    """Return the exit status of a child that is about to end; None if it does not end within PARTING_SECONDS."""
    end = time.monotonic() + PARTING_SECONDS
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    return None


def _end(child: int) -> None:
    """Kill a child, even if it is stopped. If the kernel does not end the child, gdbheap no longer waits for it."""
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        _status(child)


def _act(what: str, become: Callable[[], None], act: Callable[[], str], writing: int) -> NoReturn:
    """Call ``act`` in the child, write the result or the error, and exit, without returning into the parent's code."""
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
    """Change this process's groups and user to those of ``uid``, without a way back. Raises OSError."""
    try:
        entry = pwd.getpwuid(uid)
        group = entry.pw_gid
        os.initgroups(entry.pw_name, group)
    except KeyError:
        group = uid
        os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(uid, uid, uid)
