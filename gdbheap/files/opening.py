"""Open existing files: to append, at a path that the user gave, and at a path that comes from a target."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import BinaryIO

from gdbheap import _native
from gdbheap._native import HeldFile
from gdbheap.errors import UsageError, one_line
from gdbheap.files.folders import hold
from gdbheap.files.refusing import PRIVATE, name_of_user, refused
from gdbheap.files.special import own_descriptor

__all__ = [
    "Hold",
    "find_file",
    "hold_file",
    "is_file",
    "is_folder",
    "open_folder",
    "open_inside",
    "open_regular",
    "open_to_append",
    "open_to_read",
    "regular_descriptor",
]

# The kinds (f_type) of file systems that do not store files: reading in them makes the kernel or a device act. autofs,
# binderfs, binfmt_misc, bpf, cgroup, configfs, debugfs, devpts, efivarfs, fusectl, mqueue, nfsd, proc, pstore, resctrl,
# securityfs, selinuxfs, smackfs, sysfs, tracefs, usbdevfs, xenfs.
KERNELS = frozenset({
    0x187, 0x6C6F6F70, 0x42494E4D, 0xCAFE4A11, 0x27E0EB, 0x63677270, 0x62656570, 0x64626720, 0x1CD1, 0xDE5E81E4,
    0x65735543, 0x19800202, 0x6E667364, 0x9FA0, 0x6165676C, 0x7655821, 0x73636673, 0xF97CFF8C, 0x43415D53, 0x62656572,
    0x74726163, 0x9FA2, 0xABBA1974,
})  # fmt: skip


Hold = Callable[[str], HeldFile]
"""Opens the file at a path with O_PATH. Raises OSError, ValueError."""


def hold_file(path: str, follows: bool = True) -> HeldFile:
    """Open a file with O_PATH and return it; the caller closes its descriptor.

    The path comes from the kernel, or from the user, who may name any file. If ``follows`` is false and the path ends
    in a link, the link itself is opened. Raises OSError (TimeoutError if the file system does not respond), ValueError.
    """
    # This raises ValueError for a lone surrogate, for which the native code has no error.
    os.fsencode(path)
    try:
        return _native.hold_file(path, follows)
    except OSError as error:
        raise _said(error, path) from None


def find_file(path: str, follows: bool = True) -> HeldFile | None:
    """Return the file or folder at a path, with its descriptor closed.

    Return None if there is none, or if the file system does not respond. The path comes from the user, who may name any
    file. If ``follows`` is false and the path ends in a link, the link itself is returned.
    """
    try:
        held = hold_file(path, follows)
    except (OSError, ValueError):
        return None
    os.close(held.descriptor)
    return held


def is_file(path: str) -> bool:
    """Return whether a path names a regular file; links are followed."""
    found = find_file(path)
    return found is not None and stat.S_ISREG(found.mode)


def is_folder(path: str) -> bool:
    """Return whether a path names a folder; links are followed."""
    found = find_file(path)
    return found is not None and stat.S_ISDIR(found.mode)


def _said(error: OSError, path: str) -> OSError:
    """Return the error with a plain reason. This is the system's text for the errno, unless the path is invalid or its
    file system does not respond.
    """
    if error.errno is None or "\0" in path:
        return OSError(errno.EINVAL, "it is not a valid path", path)
    reason = "its file system does not respond" if error.errno == errno.ETIMEDOUT else os.strerror(error.errno)
    return OSError(error.errno, reason, path)


def open_to_append(path: str, make: bool = False) -> int:
    """Open one of gdbheap's own files and return a descriptor that reads and writes, at the file's beginning.

    Without ``make`` the file must exist. Raises OSError and ValueError. Raises UsageError if the file is a link or not
    a regular file. Raises UsageError if it belongs to another user or has a second hard link."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT if make else 0)
    folder, name = os.path.split(path)
    with hold(path, folder or ".") as held:
        status = held.status(name)
        if status is not None and (reason := _why_not(status)):
            raise refused(path, reason)
        number = os.open(name, flags, PRIVATE, dir_fd=held.number)
    reason = _why_not(os.fstat(number))
    if reason:
        os.close(number)
        raise refused(path, reason)
    return number


def _why_not(status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "it is a link" if stat.S_ISLNK(status.st_mode) else "it is not a regular file"
    if status.st_uid != os.geteuid():
        return f"it belongs to {name_of_user(status.st_uid)}"
    return None if status.st_nlink == 1 else "it has another name elsewhere (a hard link)"


def open_to_read(path: str) -> BinaryIO:
    """Open a regular file, or a pipe that gdbheap was started with (``<(…)`` of a shell).

    A named pipe is refused, because opening it would wait for a writer. Devices, folders and files of the kernel's file
    systems are refused too. Raises UsageError, OSError, ValueError.
    """
    return _checked(hold_file(path).descriptor, path)


def open_inside(folder: int, name: str, path: str) -> BinaryIO:
    """Open the regular file ``name`` in an open folder, without following a link.

    ``path``: the file's name in messages. Raises UsageError, OSError, ValueError."""
    return _checked(hold_file(_place(folder, name), False).descriptor, path)


def open_folder(path: str, above: int | None = None) -> int:
    """Open a folder and return a descriptor that can list it.

    If ``above`` is given, ``path`` is a name in that open folder, and must not be a link. Raises OSError (TimeoutError
    if the file system does not respond), ValueError."""
    held = hold_file(path) if above is None else hold_file(_place(above, path), False)
    if not stat.S_ISDIR(held.mode):
        os.close(held.descriptor)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return _reopened(held.descriptor, path)


def _place(folder: int, name: str) -> str:
    return f"/proc/self/fd/{folder}/{name}"


def _checked(held: int, path: str) -> BinaryIO:
    """Open for reading the file that the O_PATH descriptor ``held`` refers to, and close ``held``.

    Raises UsageError for a file that may not be opened."""
    try:
        mode = os.fstat(held).st_mode
        if not stat.S_ISREG(mode) and not (stat.S_ISFIFO(mode) and own_descriptor(path) is not None):
            raise UsageError(f"{one_line(path)} cannot be read: it is not a regular file")
        if _native.filesystem_of(held) in KERNELS:
            raise UsageError(f"{one_line(path)} cannot be read: it is in a file system of the kernel, such as /proc")
    except BaseException:
        os.close(held)
        raise
    number = _reopened(held, path)
    os.set_blocking(number, True)
    return open(number, "rb")


def open_regular(path: str, may_be_empty: bool = False, hold: Hold = hold_file) -> BinaryIO:
    """Open a regular file for reading, with the checks of ``regular_descriptor``. Raises OSError, ValueError."""
    return open(regular_descriptor(path, may_be_empty, hold), "rb")


def regular_descriptor(path: str, may_be_empty: bool = False, hold: Hold = hold_file) -> int:
    """Open a regular file and return a descriptor that reads it.

    Files of other kinds are refused: opening a device has effects, and a pipe's writer continues once the pipe is
    opened. Files of the kernel are refused too, because reading them may have effects. These are files of size 0
    (/proc/kmsg), and files in the kernel's own file systems (sysfs). ``may_be_empty`` allows both. Raises OSError
    (TimeoutError if the file system does not respond), ValueError.

    ``hold``: opens a path with O_PATH. A path that comes from a target must go through ``FileSystems.open``
    (gdbheap.host).
    """
    held = hold(path)
    try:
        if stat.S_ISDIR(held.mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(held.mode) or not (held.size or may_be_empty):
            raise OSError(f"{one_line(path)} is empty, or not a regular file")
        if not may_be_empty and held.kind in KERNELS:
            raise OSError(f"{one_line(path)} is in a file system of the kernel, such as /proc")
    except BaseException:
        os.close(held.descriptor)
        raise
    return _reopened(held.descriptor, path)


def _reopened(held: int, path: str) -> int:
    """Open for reading exactly the file that the O_PATH descriptor ``held`` refers to, and close ``held``.

    The path may name another file by now."""
    try:
        return _native.reopen_file(held)
    except BlockingIOError:
        # EAGAIN would be reported as a lack of threads.
        raise OSError(errno.EBUSY, "another process holds a lease on this file", path) from None
    except OSError as error:
        raise _said(error, path) from None
