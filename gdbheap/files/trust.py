"""Who may put names into a folder besides us: what its owner, its mode and its access list say.

Only root and we ourselves are trusted. Root works for another user where sudo says so (SUDO_UID): that user's folders
are taken, with the care that a folder such as /tmp needs.
"""

from __future__ import annotations

import errno
import os
import stat
from functools import cache

from gdbheap.files.refusing import name_of_user

__all__ = ["OWN", "SHARED", "SWAPPABLE", "is_trusted", "kind_of_folder", "why_unsafe"]

# Nobody else may put names into it; others may add names, and touch no name of ours; one other user may do both.
OWN, SHARED, SWAPPABLE = "own", "shared", "swappable"
GROUP_OR_OTHERS = stat.S_IWGRP | stat.S_IWOTH
ACCESS_LIST = "system.posix_acl_access"
NO_LIST = (errno.ENODATA, errno.ENOTSUP)


@cache
def _trusted(uid: int) -> frozenset[int]:
    # A user namespace need not map root: there the files of root belong to whoever "/" belongs to.
    return frozenset({0, uid, os.stat("/").st_uid})


def is_trusted(uid: int) -> bool:
    """Return whether files of this user are not somebody else's doing."""
    return uid in _trusted(os.geteuid())


def _sudo_user() -> int | None:
    """Return the user for whom root works, as sudo says."""
    named = os.environ.get("SUDO_UID", "")
    return int(named) if os.geteuid() == 0 and named.isascii() and named.isdecimal() else None


def kind_of_folder(folder: int, status: os.stat_result) -> str | None:
    """Return OWN, SHARED or SWAPPABLE; None for a folder that is refused. ``folder``: its descriptor."""
    if not is_trusted(status.st_uid) and status.st_uid != _sudo_user():
        return None
    if _others_may_write(folder, status):
        return SHARED if status.st_mode & stat.S_ISVTX and is_trusted(status.st_uid) else None
    return OWN if is_trusted(status.st_uid) else SWAPPABLE


def why_unsafe(folder: str, status: os.stat_result) -> str:
    """Return the reason for which a folder is refused, and what helps."""
    if not is_trusted(status.st_uid) and status.st_uid != _sudo_user():
        return f"{folder} belongs to {name_of_user(status.st_uid)}, who may plant files there: choose another folder"
    mode = stat.S_IMODE(status.st_mode)
    return f"others may plant files in {folder} (mode {mode:04o}): choose another folder"


def _others_may_write(folder: int, status: os.stat_result) -> bool:
    written = status.st_mode & GROUP_OR_OTHERS
    return bool(written) and not (written == stat.S_IWGRP and _is_alone(folder, status))


def _is_alone(folder: int, status: os.stat_result) -> bool:
    """Return whether the group of a folder has nobody in it but the owner, as distributions make one for each user.
    The group's bits are a mask where there is an access list."""
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    if (owner.pw_name, owner.pw_gid) != (group.gr_name, group.gr_gid) or {*group.gr_mem} - {owner.pw_name}:
        return False
    try:
        return not os.getxattr(f"/proc/self/fd/{folder}", ACCESS_LIST)
    except OSError as error:
        return error.errno in NO_LIST
