"""The processes that run now, and the list of them that a watch renews every second.

Reading the ``stat`` and the command line of each process takes sixty times as long as listing /proc.
``RunningProcesses`` therefore reads a process when it appears, and again each time its age has doubled. In this way it
soon notices that a new process runs another program.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from gdbheap._native import read_patiently
from gdbheap.dataclass import dataclass
from gdbheap.host.procfs import (
    ENDED,
    FLAGS,
    PAGES,
    PARENT,
    PF_KTHREAD,
    PROC,
    START,
    STATE,
    VIRTUAL,
    ProcessFolder,
    parse_start,
    stat_fields,
)
from gdbheap.host.program_name import program_name

__all__ = ["ProcessStat", "RunningProcesses", "all_listed", "running", "start_of"]

STAT_BYTES, NAME_BYTES = 4 << 10, 4 << 10
TICKS = os.sysconf("SC_CLK_TCK")
# A running process is read again after at most this many seconds, an ended one after the second number.
LONGEST, AFTER_END = 120.0, 1.0
# The time until the next reading also depends on the process's id, so that old processes are not all read at once.
SPREAD = 64


class ProcessStat(NamedTuple):
    """A process, as its file ``stat`` in /proc describes it.

    ``start``: when it started, in clock ticks after boot.
    ``name``: the name of its main thread, up to 15 bytes.
    ``is_kernels``: whether it is a kernel thread.
    ``pages``: the number of resident pages.
    ``place``: the folder below ``/proc/PID`` that shows its memory. It is empty, or ``task/TID/`` if the main thread
    has ended.
    """

    pid: int
    parent: int
    start: int
    name: str
    is_kernels: bool
    pages: int
    place: str = ""


@dataclass(frozen=True)
class _Entry:
    """A process that was read.

    ``inode``: the inode of its folder, which distinguishes it from a later process with the same id.
    ``one``: its ``stat``, None if it does not run.
    ``is_meant``: whether its name matches the pattern.
    ``user``: its real uid.
    ``due``: when to read it again, in seconds since boot.
    """

    inode: int
    one: ProcessStat | None
    is_meant: bool
    user: int | None
    due: float


class RunningProcesses:
    """The processes that run. ``name``: a pattern; ``users``: whether the users who started them are needed."""

    def __init__(self, name: re.Pattern[str] | None, users: bool) -> None:
        self._name, self._users = name, users
        self._entries: dict[int, _Entry] = {}

    def renew(self, listed: Mapping[int, int], is_fresh: bool = False) -> dict[int, ProcessStat]:
        """Return {id: process} of those ``listed`` processes that run.

        ``listed``: the inode of each process's folder by its id, 0 if unknown.
        ``is_fresh``: read all of them again, even if they were read before.
        """
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        known, self._entries = self._entries, {}
        for pid, inode in listed.items():
            entry = known.get(pid)
            is_known = entry is not None and entry.inode == inode and now < entry.due and not is_fresh
            self._entries[pid] = entry if is_known and entry is not None else self._read(pid, inode, now)
        return {pid: entry.one for pid, entry in self._entries.items() if entry.one is not None}

    def named(self) -> set[int]:
        """Return the ids of the running processes that the pattern ``name`` matches."""
        return {pid for pid, entry in self._entries.items() if entry.is_meant}

    def user(self, pid: int) -> int | None:
        """Return the real uid of a process; None if it is unknown."""
        entry = self._entries.get(pid)
        return None if entry is None else entry.user

    def _read(self, pid: int, inode: int, now: float) -> _Entry:
        one = running(pid)
        if one is None:
            return _Entry(inode, None, False, None, now + AFTER_END)
        due = now + min(max(now - one.start / TICKS, 0.0), LONGEST) * (SPREAD + pid % SPREAD) / (2 * SPREAD)
        is_meant = self._name is not None and matches(one, self._name)
        user = user_of(one) if self._users and (is_meant or self._name is None) else None
        return _Entry(inode, one, is_meant, user, due)


def all_listed() -> dict[int, int]:
    """Return the ids of all processes, each with the inode of its folder."""
    with os.scandir(PROC) as entries:
        return {int(entry.name): entry.inode() for entry in entries if entry.name.isdigit()}


def start_of(folder: ProcessFolder) -> int | None:
    """Return when the process started, in clock ticks after boot; None once it has ended."""
    with suppress(OSError):
        return parse_start(folder.read("stat", STAT_BYTES))
    return None


def user_of(one: ProcessStat) -> int | None:
    """Return the real uid of a process, which is the user who started it; None once the process has ended."""
    with suppress(OSError):
        folder = ProcessFolder(one.pid)
        return folder.real_user() if start_of(folder) == one.start else None
    return None


def running(pid: int) -> ProcessStat | None:
    """Return the process with this id; None if there is none.

    Return None also for a zombie, for a process that has lost its memory, and for a process that hangs in execve().
    """
    with suppress(OSError, ValueError, IndexError):
        stat, place = read_patiently(f"{PROC}/{pid}/stat", STAT_BYTES), ""
        fields = shown = stat_fields(stat)
        if fields[STATE] in ENDED:
            living = ProcessFolder(pid).living()
            place = "" if living is None else living[0]
            shown = stat_fields(read_patiently(f"{PROC}/{pid}/{place}stat", STAT_BYTES))
        is_kernels = bool(int(fields[FLAGS]) & PF_KTHREAD)
        # A process that is ending gives up its memory some time before it becomes a zombie.
        if shown[STATE] not in ENDED and (is_kernels or int(shown[VIRTUAL])):
            parent, start = int(fields[PARENT]), int(fields[START])
            name = stat.partition(b"(")[2].rpartition(b")")[0].decode("utf-8", "replace")
            return ProcessStat(pid, parent, start, name, is_kernels, int(shown[PAGES]), place)
    return None


def matches(one: ProcessStat, name: re.Pattern[str]) -> bool:
    """Return whether the pattern matches the process's name, its file name, or the name of its script.

    The file name is the last part of its first argument; the script is the file that an interpreter runs. Kernel
    threads and gdbheap itself never match.
    """
    if one.is_kernels or one.pid == os.getpid():
        return False
    if name.search(one.name):
        return True
    with suppress(OSError):
        line = read_patiently(f"{PROC}/{one.pid}/{one.place}cmdline", NAME_BYTES)
        words = line.decode("utf-8", "replace").rstrip("\0").split("\0")
        return any(name.search(each) for each in (os.path.basename(words[0]), program_name(words, None)))
    return False
