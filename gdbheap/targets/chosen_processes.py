"""Select processes by id, name, control group or parent: those that run now, and those that start later."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from gdbheap._native import read_patiently
from gdbheap.errors import EXHAUSTED, GdbheapError, NoTarget, NotPermitted, UsageError, one_line
from gdbheap.host import open_files
from gdbheap.host.headroom import CGROUPS
from gdbheap.host.procfs import (
    ENDED,
    FLAGS,
    PAGES,
    PARENT,
    PF_KTHREAD,
    PROC,
    START,
    STATE,
    Named,
    ProcessFolder,
    parse_start,
    stat_fields,
)
from gdbheap.host.program_name import program_name
from gdbheap.refusals import refusal
from gdbheap.targets.started_command import Started

__all__ = ["Programs"]

MEMBERS = "cgroup.procs"
STAT_BYTES, NAME_BYTES = 4 << 10, 4 << 10
MAX_OWNED = 100


class Running(NamedTuple):
    """A process as its ``stat`` shows it.

    ``start``: when it started, in clock ticks after boot; ``name``: up to 15 bytes; ``is_kernels``: whether it is a
    kernel thread; ``pages``: the resident pages; ``place``: the folder below ``/proc/PID`` that shows its memory:
    empty, or ``task/TID/`` if the main thread has ended.
    """

    pid: int
    parent: int
    start: int
    name: str
    is_kernels: bool
    pages: int
    place: str = ""


class Programs:
    """The processes that a command line selects; never gdbheap itself.

    They are those in ``named``, those whose name matches ``name``, and the members of the control group ``cgroup`` and
    of the groups below it. If ``user`` (a uid) is given, ``name`` and ``cgroup`` select only processes that this user
    started. ``children`` adds all descendants of the selected processes, which stay selected after their parents end.
    ``command``: the command that ``start`` runs; its process is then selected too. ``owner`` (a uid) adds the largest
    MAX_OWNED processes of that user. The folder in /proc of a named process is held open from the beginning, and a
    found process is identified by its start time. So no later process with the same id is taken for a selected one.
    """

    def __init__(
        self,
        named: Sequence[Named] = (),
        children: bool = False,
        name: re.Pattern[str] | None = None,
        cgroup: str | None = None,
        command: Sequence[str] = (),
        owner: int | None = None,
        user: int | None = None,
    ) -> None:
        self._owner, self._user = owner, user
        self._held = dict(_held(named))
        self.pids = list(dict.fromkeys(int(str(process)) for process in named))
        self._starts: dict[int, int] = {}
        self.children, self.name, self.command = children, name, tuple(command)
        self._groups = [] if cgroup is None else folders(cgroup)
        self._descendants: dict[int, int] = {}

    @property
    def are_named(self) -> bool:
        """Whether the command line names processes: by id, by name, by control group, or as a command to start."""
        return bool(self.pids or self.name or self._groups or self.command)

    @property
    def may_grow(self) -> bool:
        """Whether processes that do not run yet may be selected later."""
        return bool(self.children or self.may_come)

    @property
    def may_come(self) -> bool:
        """Whether processes may still be selected later if all present ones have ended."""
        return bool(self.name or self._groups or self._owner is not None)

    def start(self) -> Started:
        """Start the command and select its process. Raises UsageError."""
        started = Started(self.command)
        self.pids.append(started.pid)
        self._held.update(_held([started.pid]))
        return started

    def now(self) -> list[int]:
        """Return the ids of the selected processes that run now, ascending. Zombies and ended processes are
        left out."""
        if not self.may_grow:
            return self._running()
        there = {found.pid: found for found in processes()}
        meant = {pid for pid in self._running() if pid in there} | self._owned(there)
        meant |= {pid for pid in self._named(there) | self._members(there) if self._is_users(there[pid])}
        if self.children:
            meant |= self._family(there, meant)
        meant.discard(os.getpid())
        self._starts = {pid: there[pid].start for pid in meant if pid not in self._held}
        return sorted(meant)

    def folder(self, pid: int) -> ProcessFolder:
        """Return the process that ``now`` selected under this id.

        Raises NoTarget, NotPermitted; GdbheapError if so many files are open that too few are left for work with the
        held processes.
        """
        if pid in self._held:
            return self._held[pid]
        return held(started_at(pid, self._starts[pid]) if pid in self._starts else pid)

    def named(self) -> list[Named]:
        """Return the named processes; a process that may not be seen or held is given by its id."""
        return [self._held.get(pid, pid) for pid in self.pids]

    def folders(self) -> list[ProcessFolder]:
        """Return the selected processes that run now and may be seen.

        Raises GdbheapError for more than can be held open.
        """
        return list(_opened(self.now(), self.folder))

    def meant(self) -> list[Named]:
        """Return the named processes, and the selected processes that run now and may be seen, by ascending id.

        If too many files are open to hold a process too, its id is returned instead.
        """
        found: dict[int, Named] = {int(str(process)): process for process in self.named()}
        for pid in self.now():
            try:
                found[pid] = self.folder(pid)
            except (NoTarget, NotPermitted):
                continue
            except GdbheapError:
                found[pid] = pid
        return [found[pid] for pid in sorted(found)]

    def _running(self) -> list[int]:
        return sorted(pid for pid, folder in self._held.items() if folder.is_running())

    def _is_users(self, one: Running) -> bool:
        return self._user is None or user_of(one) == self._user

    def _named(self, there: dict[int, Running]) -> set[int]:
        name = self.name
        if name is None:
            return set()
        return {pid for pid, one in there.items() if self._is_users(one) and matches(one, name)}

    def _members(self, there: dict[int, Running]) -> set[int]:
        return {pid for folder in self._groups for pid in members(folder) if pid in there}

    def _owned(self, there: dict[int, Running]) -> set[int]:
        if self._owner is None:
            return set()
        largest = sorted((one for one in there.values() if not one.is_kernels), key=lambda one: -one.pages)
        return set(islice((one.pid for one in largest if owner_of(one.pid) == self._owner), MAX_OWNED))

    def _family(self, there: dict[int, Running], parents: set[int]) -> set[int]:
        """Return all descendants of ``parents``, also those found earlier whose parents have ended since."""
        known = {pid for pid, start in self._descendants.items() if pid in there and there[pid].start == start}
        by_parent: dict[int, list[int]] = {}
        for one in there.values():
            by_parent.setdefault(one.parent, []).append(one.pid)
        waiting = [*parents, *known]
        while waiting:
            new = [pid for pid in by_parent.get(waiting.pop(), ()) if pid not in known and pid not in parents]
            known.update(new)
            waiting += new
        self._descendants = {pid: there[pid].start for pid in known}
        return known


def _opened(processes: Sequence[Named], opener: Callable[[Any], ProcessFolder]) -> Iterator[ProcessFolder]:
    """Yield the processes that still run and may be seen. Raises GdbheapError if these are more than can be
    held open."""
    for process in processes:
        with suppress(NoTarget, NotPermitted):
            yield opener(process)


def held(process: Named) -> ProcessFolder:
    """Hold a process's folder open, as one of many.

    Raises NoTarget, NotPermitted, GdbheapError if too many files are open.
    """
    folder = refusal.open_folder(process)
    try:
        open_files.leave_room(folder.descriptor)
    except OSError as error:
        raise GdbheapError(EXHAUSTED[errno.EMFILE]) from error
    return folder


def _held(named: Sequence[Named]) -> Iterator[tuple[int, ProcessFolder]]:
    for process in named:
        # A process that cannot be held here raises its error later, in folder().
        with suppress(GdbheapError):
            yield int(str(process)), held(process)


def started_at(pid: int, start: int) -> ProcessFolder:
    """Return the process with this id and this start time. Raises NoTarget if another one has the id, NotPermitted."""
    folder = refusal.open_folder(pid)
    if start_of(folder) != start:
        raise refusal.another(folder)
    return folder


def start_of(folder: ProcessFolder) -> int | None:
    """Return when the process started, in clock ticks after boot; None once it has ended."""
    with suppress(OSError):
        return parse_start(folder.read("stat", STAT_BYTES))
    return None


def user_of(one: Running) -> int | None:
    """Return the real uid of a process, which is the user who started it; None once the process has ended."""
    with suppress(OSError):
        folder = ProcessFolder(one.pid)
        return folder.real_user() if start_of(folder) == one.start else None
    return None


def owner_of(pid: int) -> int | None:
    """Return the user who owns the process's folder in /proc; None once the process has ended."""
    with suppress(OSError):
        return os.stat(f"{PROC}/{pid}").st_uid
    return None


def processes() -> Iterator[Running]:
    """Yield every process that runs."""
    for word in os.listdir(PROC):
        found = running(int(word)) if word.isdigit() else None
        if found is not None:
            yield found


def running(pid: int) -> Running | None:
    """Return the process with this id; None if there is none.

    None also for a zombie, and for a process that hangs in execve().
    """
    with suppress(OSError, ValueError, IndexError):
        stat, place = read_patiently(f"{PROC}/{pid}/stat", STAT_BYTES), ""
        fields = shown = stat_fields(stat)
        if fields[STATE] in ENDED:
            living = ProcessFolder(pid).living()
            place = "" if living is None else living[0]
            shown = stat_fields(read_patiently(f"{PROC}/{pid}/{place}stat", STAT_BYTES))
        if shown[STATE] not in ENDED:
            parent, start, flags = (int(fields[number]) for number in (PARENT, START, FLAGS))
            name = stat.partition(b"(")[2].rpartition(b")")[0].decode("utf-8", "replace")
            return Running(pid, parent, start, name, bool(flags & PF_KTHREAD), int(shown[PAGES]), place)
    return None


def matches(one: Running, name: re.Pattern[str]) -> bool:
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


def folders(cgroup: str) -> list[Path]:
    """Return the folders of a control group.

    ``cgroup``: the folder below the mount (``/sys/fs/cgroup/…``), or the path in ``/proc/PID/cgroup``, which may exist
    in several hierarchies. Raises UsageError, NoTarget, NotPermitted.
    """
    path = os.path.normpath(f"/{cgroup.strip('/')}")
    if path == "/":
        raise UsageError(f"--cgroup={one_line(cgroup)} means every process: name one control group")
    inside = path == CGROUPS or path.startswith(f"{CGROUPS}/")
    places = [Path(path)] if inside else [Path(f"{root}{path}") for root in _hierarchies()]
    found = [place for place in places if (place / MEMBERS).is_file()]
    if not found:
        raise NoTarget(f"there is no control group {cgroup}: /proc/PID/cgroup names the control group of a process")
    for place in found:
        if not os.access(place / MEMBERS, os.R_OK):
            raise NotPermitted(f"{place / MEMBERS} cannot be read: run gdbheap as the owner of that file, or as root")
    return found


def _hierarchies() -> list[str]:
    """Return where hierarchies may be mounted: version 2 at CGROUPS, each controller of version 1 in a folder below
    CGROUPS.
    """
    with suppress(OSError):
        return [CGROUPS, *(entry.path for entry in os.scandir(CGROUPS) if entry.is_dir(follow_symlinks=False))]
    return [CGROUPS]


def members(folder: Path) -> Iterator[int]:
    """Yield the processes of a control group and of all groups below it, however deeply nested."""
    waiting = [str(folder)]
    while waiting:
        place = waiting.pop()
        with suppress(OSError):
            yield from (int(word) for word in Path(place, MEMBERS).read_text("ascii").split())
        with suppress(OSError), os.scandir(place) as entries:
            waiting += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
