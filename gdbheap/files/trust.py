"""Who may put names into a folder besides us: what its owner, its mode and its access list say.

Only root and we ourselves are trusted. Root works for another user where sudo says so (SUDO_UID): that user's folders
are taken, with the care that a folder such as /tmp needs.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from functools import cache

from gdbheap.files.refusing import name_of_user

__all__ = ["OWN", "SHARED", "SWAPPABLE", "is_trusted", "kind_of_folder", "why_unsafe"]

# Nobody else may put names into it; others may add names, and touch no name of ours; one other user may do both.
OWN, SHARED, SWAPPABLE = "own", "shared", "swappable"
GROUP_OR_OTHERS = stat.S_IWGRP | stat.S_IWOTH
ACCESS_LIST = "system.posix_acl_access"
NO_LIST = (errno.ENODATA, errno.ENOTSUP)
SWITCH = "/etc/nsswitch.conf"
LOCAL = frozenset({"files", "altfiles", "systemd"})


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
    """Return whether the group of a folder has nobody in it but its owner, root and us. The group's bits are a mask
    where there is an access list."""
    try:
        if not _is_own_group(status.st_uid, status.st_gid):
            return False
        return not os.getxattr(f"/proc/self/fd/{folder}", ACCESS_LIST)
    except KeyError:
        return False
    except OSError as error:
        return error.errno in NO_LIST


def _is_own_group(uid: int, gid: int) -> bool:
    """Return whether all accounts in a group are the owner's, root's or ours, and no others can be in it: the machine
    lists all accounts, or it is the group that distributions make for each user. Raises KeyError for a number or a
    member without an entry."""
    import grp
    import pwd

    owner, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    members = {pwd.getpwnam(name).pw_uid for name in group.gr_mem}
    # The group that an account begins with does not list it.
    members.update(account.pw_uid for account in pwd.getpwall() if account.pw_gid == gid)
    is_private = (owner.pw_name, owner.pw_gid) == (group.gr_name, gid)
    return members <= _trusted(os.geteuid()) | {uid} and (is_private or _are_all_listed())


def _are_all_listed() -> bool:
    """Return whether the machine's own files have all accounts: a directory (LDAP) rarely lists those that it has
    (nsswitch.conf(5))."""
    try:
        with open(SWITCH, encoding="utf-8", errors="replace") as stream:
            lines = [line.partition("#")[0].partition(":") for line in stream]
    except FileNotFoundError:
        return True
    services = [re.sub(r"\[.*?\]", "", rest).split() for name, _colon, rest in lines if name.strip() == "passwd"]
    return all(LOCAL.issuperset(words) for words in services)
