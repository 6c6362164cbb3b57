"""Select processes by id, name, control group or parent: those that run now, and those that start later."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gdbheap.errors import EXHAUSTED, GdbheapError, NoTarget, NotPermitted, UsageError, next_steps, one_line
from gdbheap.host import open_files
from gdbheap.host.headroom import CGROUPS
from gdbheap.host.procfs import PROC, Named, ProcessFolder
from gdbheap.refusals import refusal
from gdbheap.targets.running_processes import ProcessStat, RunningProcesses, all_listed, running, start_of
from gdbheap.targets.started_command import StartedProcess

__all__ = ["Programs"]

MEMBERS = "cgroup.procs"
MAX_OWNED = 100
# gdbheap, a child that reads or guards a process, and two generations of that child.
OWN_GENERATIONS = 4


class Programs:
    """The processes that a command line selects; never gdbheap itself.

    ``named``: processes that are selected.
    ``name``: a pattern; processes with a matching name are selected too.
    ``cgroup``: a control group; its members, and those of the groups below it, are selected too.
    ``user``: a uid; then ``name`` and ``cgroup`` select only processes that this user started.
    ``children``: whether descendants of selected processes are selected too. They stay selected after their parents
    end.
    ``command``: the command that ``start`` runs; its process is then selected too.
    ``owner``: a uid; the largest MAX_OWNED processes of that user are selected too.

    The folder in /proc of a named process is held open from the beginning. A found process is identified by its start
    time. A later process with the same id is therefore not mistaken for a selected process.
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
        self._there = RunningProcesses(name, user is not None)
        # How many processes of ``owner`` are not selected, because they are not among the largest.
        self.smaller = 0
        # The share of gdbheap's descriptors that selected processes may take.
        self.share = 1 / 3

    @property
    def are_named(self) -> bool:
        """Whether the command line names processes: by id, name or control group, or as a command to start."""
        return bool(self.pids or self.name or self._groups or self.command)

    @property
    def may_grow(self) -> bool:
        """Whether processes that start later may be selected too. Otherwise the list never changes."""
        return bool(self.children or self.may_come)

    @property
    def may_come(self) -> bool:
        """Whether processes may still be selected after all current ones have ended, so that it is worth waiting for
        them.
        """
        return bool(self.name or self._groups or self._owner is not None)

    def start(self) -> StartedProcess:
        """Start the command and select its process. Raises UsageError."""
        started = StartedProcess(self.command)
        self.pids.append(started.pid)
        self._held.update(_held([started.pid]))
        return started

    def now(self) -> list[int]:
        """Return the ids of the selected processes that run now, ascending. Zombies and ended processes are
        left out."""
        if not self.may_grow:
            return self._running()
        listed = dict.fromkeys(self._members(), 0) if self._is_group else all_listed()
        there = self._there.renew(listed, is_fresh=self._owner is not None)
        meant = {pid for pid in self._running() if pid in there} | self._owned(there)
        chosen = self._there.named() | (listed.keys() if self._is_group else self._members())
        meant |= {pid for pid in chosen if pid in there and self._is_users(pid)}
        if self.children:
            meant |= self._family(there, meant)
        meant.discard(os.getpid())
        meant = {pid for pid in meant if pid in self._held or not _is_ours(there, pid)}
        # The list may still have processes that have ended since they were read.
        meant = {pid for pid in meant if _start(running(pid)) == there[pid].start}
        self._starts = {pid: there[pid].start for pid in meant if pid not in self._held}
        return sorted(meant)

    def folder(self, pid: int) -> ProcessFolder:
        """Return the process that ``now`` selected under this id.

        Raises NoTarget and NotPermitted. Raises GdbheapError if too few descriptors are left for reading the processes.
        """
        if pid in self._held:
            return self._held[pid]
        return held(started_at(pid, self._starts[pid]) if pid in self._starts else pid, self.share)

    def named(self) -> list[Named]:
        """Return the named processes. A process is represented by its id if it may not be seen, or could not be held
        open.
        """
        return [self._held.get(pid, pid) for pid in self.pids]

    def folders(self) -> list[ProcessFolder]:
        """Return the selected processes that run now and are visible to gdbheap's user.

        Raises GdbheapError if they are more than can be held open.
        """
        return list(_opened(self.now(), self.folder))

    def meant(self) -> list[Named]:
        """Return the named processes, and the selected processes that run now and may be seen, by ascending id.

        If too many files are open, a process is represented by its id.
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

    @property
    def _is_group(self) -> bool:
        """Whether only members of the control group can be selected, so that no other process has to be listed."""
        return bool(self._groups) and not (self.name or self.children or self._held or self._owner is not None)

    def _is_users(self, pid: int) -> bool:
        return self._user is None or self._there.user(pid) == self._user

    def _members(self) -> set[int]:
        return {pid for folder in self._groups for pid in members(folder)}

    def _owned(self, there: dict[int, ProcessStat]) -> set[int]:
        if self._owner is None:
            return set()
        owned = [one for one in there.values() if not one.is_kernels and owner_of(one.pid) == self._owner]
        self.smaller = max(0, len(owned) - MAX_OWNED)
        return {one.pid for one in sorted(owned, key=lambda one: -one.pages)[:MAX_OWNED]}

    def _family(self, there: dict[int, ProcessStat], parents: set[int]) -> set[int]:
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


def _is_ours(there: Mapping[int, ProcessStat], pid: int) -> bool:
    """Return whether a process is gdbheap itself, or one that it started to read or to guard a process."""
    ours = os.getpid()
    # The processes were read one after the other, so that their parents may form a circle.
    for _ in range(OWN_GENERATIONS):
        if pid == ours:
            return True
        one = there.get(pid)
        if one is None or not one.name.startswith(refusal.OURS.decode()):
            return False
        pid = one.parent
    return False


def _start(one: ProcessStat | None) -> int | None:
    return None if one is None else one.start


def _opened(processes: Sequence[Named], opener: Callable[[Any], ProcessFolder]) -> Iterator[ProcessFolder]:
    """Open and yield the processes that still run and may be seen.

    Raises GdbheapError if they are more than can be held open.
    """
    for process in processes:
        with suppress(NoTarget, NotPermitted):
            yield opener(process)


def held(process: Named, share: float = 1 / 3) -> ProcessFolder:
    """Open the folder of a process in /proc, and return it.

    ``share``: the share of gdbheap's descriptors that all open folders may take.

    Raises NoTarget and NotPermitted. Raises GdbheapError if too many files are open.
    """
    folder = refusal.open_folder(process)
    try:
        open_files.leave_room(folder.descriptor, share)
    except OSError as error:
        raise GdbheapError(EXHAUSTED[errno.EMFILE], next_steps(EXHAUSTED[errno.EMFILE])) from error
    return folder


def _held(named: Sequence[Named]) -> Iterator[tuple[int, ProcessFolder]]:
    for process in named:
        # A process that cannot be held here raises its error later, in folder().
        with suppress(GdbheapError):
            yield int(str(process)), held(process)


def started_at(pid: int, start: int) -> ProcessFolder:
    """Return the folder of the process with this id and this start time. Raises NotPermitted.

    Raises NoTarget if the process has ended, or if another process has the id.
    """
    folder = refusal.open_folder(pid)
    if start_of(folder) != start:
        raise refusal.another(folder)
    return folder


def owner_of(pid: int) -> int | None:
    """Return the user who owns the process's folder in /proc, which is root if the process is not dumpable. None once
    the process has ended.
    """
    with suppress(OSError):
        return os.stat(f"{PROC}/{pid}").st_uid
    return None


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
    """Return the folders where hierarchies of control groups may be mounted.

    These are CGROUPS for version 2, and a folder below CGROUPS for each controller of version 1.
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
