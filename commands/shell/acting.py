"""Root acts in another user's folders with that user's rights: no link there leads it where the user may not go."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from typing import NoReturn

from gdbheap.errors import GdbheapError, one_line

__all__ = ["as_user"]

FAILED = 1


def as_user(uid: int, act: Callable[[], str]) -> str:
    """Return what ``act`` returns in a child with the rights of the user ``uid`` and no others. Raises GdbheapError,
    also for one that it raises. The child may not be able to import anything: ``act`` needs nothing more."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _act(uid, act, writing)
    os.close(writing)
    with open(reading, encoding="utf-8", errors="surrogateescape") as stream:
        said = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        error = GdbheapError(said or f"what was done as user {uid} ended with status {status}")
        error.status = max(status, FAILED)
        raise error
    return said


def _act(uid: int, act: Callable[[], str], writing: int) -> NoReturn:
    """Be the child: never return into what the parent does."""
    status = FAILED
    try:
        _become(uid)
        said, status = act(), 0
    except GdbheapError as error:
        said, status = str(error), error.status
    except BaseException as error:
        said = f"not done as user {uid}: {one_line(error)}"
    try:
        os.write(writing, said.encode("utf-8", "surrogateescape"))
    finally:
        os._exit(status)


def _become(uid: int) -> None:
    """Take on the user's groups and number, for good. Raises OSError."""
    try:
        entry = pwd.getpwuid(uid)
        group = entry.pw_gid
        os.initgroups(entry.pw_name, group)
    except KeyError:
        group = uid
        os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(uid, uid, uid)
