"""The limit on open files of this program.

The usual soft limit is 1,024, the most that select(2) can handle. A program that does not call select may raise it to
the hard limit.
"""

from __future__ import annotations

import errno
import os
import resource

__all__ = ["allow_many", "be_usual", "free", "leave_room"]

_usual: list[int] = []


def allow_many() -> None:
    """Raise the soft limit on open files to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _usual[:] = _usual or [soft]


def be_usual() -> None:
    """Restore the soft limit on open files that ``allow_many`` raised. A child calls this function right before it runs
    another program."""
    if _usual:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_usual[0], hard), hard))


def free() -> int:
    """Return how many more files this program may open: the soft limit less the number of open descriptors."""
    return max(0, _limit() - len(os.listdir("/proc/self/fd")))


def leave_room(descriptor: int, share: float = 1 / 3) -> None:
    """Raise OSError (EMFILE) if a descriptor is above this ``share`` of the limit on open files.

    The kernel always assigns the lowest free number, so the number shows how many descriptors are open. The rest of the
    limit is for stopping the held processes. That takes one more descriptor for each of them, and some for other work.
    """
    if descriptor >= _limit() * share:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def _limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 1 << 30
