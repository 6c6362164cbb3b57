"""One-line error messages for files that gdbheap does not write."""

from __future__ import annotations

import errno
import os

from gdbheap.errors import GdbheapError, NotPermitted, UsageError, one_line

__all__ = ["PRIVATE", "name_of_user", "no_place", "not_written", "refused"]

PRIVATE = 0o600
"""The default mode of every file that gdbheap writes."""


def refused(path: str, reason: str) -> UsageError:
    """Return the error for a file that may not be written."""
    return UsageError(f"{one_line(path)} cannot be written: {one_line(reason)}")


def not_written(path: str, error: OSError | ValueError) -> UsageError:
    """Return the error for a file that the system could not write."""
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return refused(path, reason)


def no_place(path: str, folder: str, error: OSError) -> GdbheapError:
    """Return the error for a file whose folder is missing, is not a folder, or is not writable."""
    folder = one_line(folder or ".")
    if error.errno == errno.EROFS:
        return NotPermitted(f"{one_line(path)} cannot be written: the file system of {folder} is read-only")
    if isinstance(error, PermissionError):
        return NotPermitted(f"{one_line(path)} cannot be written: user {os.geteuid()} may not write into {folder}")
    if isinstance(error, FileNotFoundError):
        return refused(path, f"there is no folder {folder}")
    return refused(path, f"{folder} is not a folder")


def name_of_user(uid: int) -> str:
    """Return the name of a user, or "uid 1234" if the account has no name."""
    # Imported on use: few runs refuse a file.
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
