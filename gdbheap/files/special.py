"""Write to destinations that are not regular files: gdbheap's own descriptors, devices and pipes."""

from __future__ import annotations

import errno
import os
import re
import stat
import time

from gdbheap import _native
from gdbheap.files.folders import HeldFolder
from gdbheap.files.refusing import name_of_user, refused
from gdbheap.files.trust import is_trusted

__all__ = ["duplicate", "is_special", "is_stream", "open_special", "own_descriptor", "why_not_special"]

STANDARD = ("stdin", "stdout", "stderr")
DESCRIPTOR = re.compile(r"//?dev/(?:(stdin|stdout|stderr)|fd/(\d{1,9}))|//?proc/(?:thread-)?self/fd/(\d{1,9})")
NOWHERE = os.makedev(1, 3)
WAIT_SECONDS = 0.05


def own_descriptor(path: str) -> int | None:
    """Return the descriptor of this process that a path such as /dev/fd/3 names; None for any other path."""
    try:
        found = DESCRIPTOR.fullmatch(os.path.abspath(path))
    except OSError:
        # The current folder was removed.
        return None
    if found is None:
        return None
    return STANDARD.index(found[1]) if found[1] else int(found[2] or found[3])


def is_stream(path: str) -> bool:
    """Return whether a path names one of gdbheap's own descriptors, a device or a pipe. Data written there is not
    stored as a file."""
    try:
        if own_descriptor(path) is not None:
            return True
        held = _native.hold_file(path, False)
    except (OSError, ValueError):
        return False
    os.close(held.descriptor)
    return _is_special(held.mode)


def duplicate(path: str, number: int) -> int:
    """Return a duplicate of a descriptor that gdbheap was started with. Raises OSError. Raises UsageError for any other
    descriptor.
    """
    # Descriptors that gdbheap opens are close-on-exec; descriptors that it was started with are not.
    if number >= len(STANDARD) and not os.get_inheritable(number):
        raise refused(path, f"gdbheap was not started with a descriptor {number}")
    return os.dup(number)


def is_special(status: os.stat_result) -> bool:
    """Return whether a file is a device, a pipe or a socket; these are written in place and never replaced."""
    return _is_special(status.st_mode)


def _is_special(mode: int) -> bool:
    return not any(check(mode) for check in (stat.S_ISREG, stat.S_ISLNK, stat.S_ISDIR))


def why_not_special(status: os.stat_result) -> str | None:
    """Return why a device, pipe or socket must not be written to; None if writing is allowed."""
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == NOWHERE:
        return None
    if not stat.S_ISCHR(status.st_mode) and not stat.S_ISFIFO(status.st_mode):
        return "it is a disk" if stat.S_ISBLK(status.st_mode) else "it is a socket"
    if is_trusted(status.st_uid) or status.st_uid == _terminal_owner(status):
        return None
    kind = "pipe" if stat.S_ISFIFO(status.st_mode) else "device"
    return f"it is a {kind} that belongs to {name_of_user(status.st_uid)}"


def _terminal_owner(status: os.stat_result) -> int | None:
    """Return the owner of the file if it is gdbheap's own terminal, which under sudo belongs to the user; else None."""
    for number in range(len(STANDARD)):
        try:
            own = os.fstat(number)
        except OSError:
            continue
        if stat.S_ISCHR(own.st_mode) and own.st_rdev == status.st_rdev:
            return own.st_uid
    return None


def open_special(path: str, folder: HeldFolder, name: str, status: os.stat_result) -> int:
    """Open a device or a pipe for writing.

    For a pipe, wait until it has a reader; Ctrl-C interrupts the wait. Raises UsageError, OSError.
    """
    number = _opened(folder, name)
    try:
        found = os.fstat(number)
        if not os.path.samestat(found, status):
            raise refused(path, why_not_special(found) or "another file has replaced it meanwhile")
        os.set_blocking(number, True)
    except BaseException:
        os.close(number)
        raise
    return number


def _opened(folder: HeldFolder, name: str) -> int:
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    while True:
        try:
            return os.open(name, flags, dir_fd=folder.number)
        except OSError as error:
            status = folder.status(name)
            # A terminal without a device fails with ENXIO too, but waiting does not help there.
            is_pipe = status is not None and stat.S_ISFIFO(status.st_mode) and not why_not_special(status)
            if error.errno != errno.ENXIO or not is_pipe:
                raise
            time.sleep(WAIT_SECONDS)
