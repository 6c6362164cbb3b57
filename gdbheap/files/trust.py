"""Determine which other users may put names into a folder, from its owner, its mode and its access list (ACL).

Only root and the current user are trusted. When root works for another user through sudo (SUDO_UID), that user's
folders are accepted. They are handled with the same care as /tmp.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from functools import cache

from gdbheap.files.refusing import name_of_user

__all__ = ["OWN", "SHARED", "SWAPPABLE", "is_trusted", "kind_of_folder", "why_unsafe"]

# OWN: nobody else may add names. SHARED: others may add names, but not rename or remove ours. SWAPPABLE: one other user
# may do both.
OWN, SHARED, SWAPPABLE = "own", "shared", "swappable"
GROUP_OR_OTHERS = stat.S_IWGRP | stat.S_IWOTH
ACCESS_LIST = "system.posix_acl_access"
NO_LIST = (errno.ENODATA, errno.ENOTSUP)
SWITCH = "/etc/nsswitch.conf"
LOCAL = frozenset({"files", "altfiles", "systemd"})


@cache
def _trusted(uid: int) -> frozenset[int]:
    # A user namespace need not map root: there, root's files belong to the owner of "/".
    return frozenset({0, uid, os.stat("/").st_uid})


def is_trusted(uid: int) -> bool:
    """Return whether files of this user are trusted: they are root's or our own."""
    return uid in _trusted(os.geteuid())


def _sudo_user() -> int | None:
    """Return the id of the user for whom root runs gdbheap through sudo; None if there is no such user."""
    named = os.environ.get("SUDO_UID", "")
    return int(named) if os.geteuid() == 0 and named.isascii() and named.isdecimal() else None


def kind_of_folder(folder: int, status: os.stat_result) -> str | None:
    """Return who else may change the names in a folder; None if the folder is refused.

    OWN: nobody. SHARED: others may add names, but not rename or remove gdbheap's. SWAPPABLE: one other user may do
    both.
    ``folder``: the folder's descriptor. ``status``: its fstat.
    """
    if not is_trusted(status.st_uid) and status.st_uid != _sudo_user():
        return None
    if _others_may_write(folder, status):
        return SHARED if status.st_mode & stat.S_ISVTX and is_trusted(status.st_uid) else None
    return OWN if is_trusted(status.st_uid) else SWAPPABLE


def why_unsafe(folder: str, status: os.stat_result) -> str:
    """Return why a folder is refused, and what to do instead."""
    if not is_trusted(status.st_uid) and status.st_uid != _sudo_user():
        return f"{folder} belongs to {name_of_user(status.st_uid)}, who may plant files there: choose another folder"
    mode = stat.S_IMODE(status.st_mode)
    return f"other users may plant files in {folder} (mode {mode:04o}): choose another folder"


def _others_may_write(folder: int, status: os.stat_result) -> bool:
    written = status.st_mode & GROUP_OR_OTHERS
    return bool(written) and not (written == stat.S_IWGRP and _is_alone(folder, status))


def _is_alone(folder: int, status: os.stat_result) -> bool:
    """Return whether a folder's group has only these members: the folder's owner, root and the current user.

    False if the folder has an access list (ACL). Its group bits are then only a mask, so the list may admit others.
    """
    try:
        if not _is_own_group(status.st_uid, status.st_gid):
            return False
        return not os.getxattr(f"/proc/self/fd/{folder}", ACCESS_LIST)
    except KeyError:
        return False
    except OSError as error:
        return error.errno in NO_LIST


def _is_own_group(uid: int, gid: int) -> bool:
    """Return whether a group can have only these accounts: the owner's, root's and the current user's.

    All known members of the group must be among these accounts. In addition, the machine must list all accounts, or the
    group must be the private one that distributions create for each user. Raises KeyError for an id or a member without
    an entry.
    """
    import grp
    import pwd

    owner, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    members = {pwd.getpwnam(name).pw_uid for name in group.gr_mem}
    # A group does not list the accounts whose primary group it is.
    members.update(account.pw_uid for account in pwd.getpwall() if account.pw_gid == gid)
    is_private = (owner.pw_name, owner.pw_gid) == (group.gr_name, gid)
    return members <= _trusted(os.geteuid()) | {uid} and (is_private or _are_all_listed())


def _are_all_listed() -> bool:
    """Return whether the machine's own files list all accounts (nsswitch.conf(5)).

    A directory service (LDAP) rarely lists its accounts.
    """
    try:
        with open(SWITCH, encoding="utf-8", errors="replace") as stream:
            lines = [line.partition("#")[0].partition(":") for line in stream]
    except FileNotFoundError:
        return True
    services = [re.sub(r"\[.*?\]", "", rest).split() for name, _colon, rest in lines if name.strip() == "passwd"]
    return all(LOCAL.issuperset(words) for words in services)
