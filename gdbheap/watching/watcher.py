"""Watch processes: find them, poll their memory and their control groups, and yield the events."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from gdbheap.errors import GdbheapError, NoTarget, one_line, reason_of
from gdbheap.host.procfs import ProcessFolder
from gdbheap.targets.chosen_processes import Programs
from gdbheap.targets.hits import MAX_STAND
from gdbheap.watching.gauges import LONGEST, SHORTEST_OF_SIZE, Gauge, Gauges
from gdbheap.watching.heap_figures import Looks
from gdbheap.watching.memory_errors import MemoryErrors
from gdbheap.watching.memory_readings import GroupMemory, MachineMemory, ProcessMemory, groups_above, groups_of
from gdbheap.watching.triggers import AboveSize, Cause, Grows, NearLimit, Raised, Trigger
from gdbheap.watching.wake_descriptors import group_wakers, machine_wakers, process_wakers

__all__ = ["Happening", "Wanted", "Watched", "Watcher"]

# The search for processes takes at most this share of one processor. The longest pause between two searches, in
# seconds.
SCAN_SHARE, MAX_PAUSE = 0.002, 5.0
NAME_LIMIT = 64
THE_GROUP, MACHINE = "the group", "machine"


@dataclass(frozen=True)
class Wanted:
    """The conditions to wait for.

    ``rss``: more than this many bytes; ``grows``: growth by more than (bytes, seconds); ``at_oom``: a memory limit is
    near, which means that ``share`` of it is used or that it is reached within ``within`` seconds; ``memory_errors``:
    Python raises MemoryError; the thread is then stopped for at most ``limit`` seconds; ``seccomp``: catch MemoryErrors
    even under a seccomp filter."""

    rss: int | None = None
    grows: tuple[int, float] | None = None
    at_oom: bool = False
    share: float = 0.9
    within: float = 2.0
    memory_errors: bool = False
    seccomp: bool = False
    limit: float = MAX_STAND

    def of_size(self) -> list[Trigger]:
        """Return the conditions on the size of a process, or of a group as a whole."""
        above: list[Trigger] = [] if self.rss is None else [AboveSize(self.rss)]
        return above if self.grows is None else [*above, Grows(*self.grows)]

    def of_limit(self) -> list[Trigger]:
        """Return the conditions on memory that has a limit."""
        return [NearLimit(self.share, self.within)]


@dataclass(frozen=True)
class Happening:
    """An event, by ``kind``.

    "began": a process is watched from now on; "ended": it is no longer watched; "due": act on it, because of ``cause``;
    "killed": the OOM killer killed a process of ``group``; "unseen": the process's MemoryErrors cannot be caught;
    "unrestored": its code is still changed; "missed": a read of its heap failed for a new reason; "left-out": the
    processes ``pids`` are wanted but cannot be watched (reported once for each). ``reason``: why."""

    kind: str
    pid: int | None = None
    name: str = ""
    cause: Cause | None = None
    group: str | None = None
    reason: str = ""
    pids: Sequence[int] = ()


@dataclass
class Watched:
    """A watched process.

    ``user``: its real uid; ``groups``: its control groups, as the kernel's text; ``gauges``: the keys of its gauges;
    ``errors``: catches its MemoryErrors, None if they are not caught."""

    folder: ProcessFolder
    name: str
    user: int
    groups: bytes | None = None
    gauges: set[str] = field(default_factory=set)
    errors: MemoryErrors | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        return self.folder.pid

    @property
    def size(self) -> int:
        """The RSS in bytes; 0 once the process has ended."""
        with suppress(OSError):
            return ProcessMemory(self.folder).read(0).size
        return 0


class Watcher:
    """Waits for the conditions ``wanted`` in each process of ``programs`` or, if ``cgroup`` is given, in that group as
    a whole; its members are then the ``programs``.

    ``looks``: reads the processes' heaps from time to time; ``until``: when to end (``time.monotonic``)."""

    def __init__(
        self,
        programs: Programs,
        wanted: Wanted,
        cgroup: GroupMemory | None = None,
        looks: Looks | None = None,
        until: float = math.inf,
    ) -> None:
        self.programs, self.wanted, self.cgroup = programs, wanted, cgroup
        self.looks = looks if looks is not None else Looks(None, None)
        self.watched: dict[int, Watched] = {}
        self._gauges = Gauges()
        self._of_group = self._group_gauges(cgroup) if cgroup is not None else set()
        self._left_out: dict[int, str] = {}
        self._next_scan = 0.0
        self._until = until

    @property
    def is_over(self) -> bool:
        """Whether no process is left to watch and no new one can appear."""
        return not self.watched and not self.programs.may_grow

    @property
    def limits(self) -> dict[str, int]:
        """The memory limits that are watched now, in bytes, by the name of the control group; "" stands for the
        machine."""
        found = {gauge.group: gauge.memory.limit for gauge in self._gauges}
        return {group: limit for group, limit in found.items() if group is not None and limit is not None}

    def happenings(self) -> Iterator[Happening]:
        """Yield all events, until no process is left to watch or the time is over."""
        yield from self._scan()
        while not self.is_over and time.monotonic() < self._until:
            is_ready = self._gauges.wait(min(self._next_scan, self.looks.due, self._until), self.looks.descriptor)
            yield from self._look()
            yield from self._turn(is_ready)
            if time.monotonic() >= self._next_scan:
                yield from self._scan()

    def _look(self) -> Iterator[Happening]:
        for key, gauge, found in self._gauges.look():
            if found is None:
                # A process has ended, or the processes of a group have ended or moved to another group.
                self._next_scan = 0.0
                continue
            if found.killed:
                yield Happening("killed", group=gauge.group)
            for cause in found.causes:
                yield from self._due(key, gauge, cause)

    def _turn(self, is_ready: bool) -> Iterator[Happening]:
        """Yield an event for each heap read that failed.

        An action just done may have abandoned the read whose result was ready; then nothing is ready any more."""
        for pid, reason in self.looks.turn(is_ready and self.looks.descriptor is not None):
            yield Happening("missed", pid, self.looks.seen[pid].name, reason=reason)

    def _due(self, key: str, gauge: Gauge, cause: Cause) -> Iterator[Happening]:
        """Yield the event to act on a process: the largest of the processes that the gauge is about."""
        concerned = [(one.size, pid) for pid, one in self.watched.items() if key in one.gauges]
        size, pid = max(concerned, default=(0, 0))
        if size:
            yield Happening("due", pid, self.watched[pid].name, dataclasses.replace(cause, cgroup=gauge.group))

    def _scan(self) -> Iterator[Happening]:
        """Search for processes. Yield an event for each process that has appeared or ended, and note which processes
        moved to another group."""
        began, used = time.monotonic(), time.thread_time()
        now = self.programs.now()
        # If a process has ended, its id may have been reused.
        for pid in [pid for pid, one in self.watched.items() if pid not in now or not self._is_seen(one)]:
            yield from self._forget(pid)
        self._renew_group()
        known, self._left_out = self._left_out, {}
        for pid in now:
            if pid not in self.watched:
                yield from self._add(pid)
            elif _groups(self.watched[pid].folder) != self.watched[pid].groups:
                self._regroup(self.watched[pid])
        yield from self._say_left_out(known)
        now_used = [key for one in self.watched.values() for key in one.gauges]
        self._gauges.keep([*now_used, *self._of_group])
        # Only processor time counts: the search may also have waited, for example for a heap read to end.
        pause = (time.thread_time() - used) / SCAN_SHARE
        self._next_scan = began + min(MAX_PAUSE, max(LONGEST, pause))

    def _is_seen(self, one: Watched) -> bool:
        """Return whether the watched process still runs, and its id has not been reused."""
        return _key(one.pid) in self._gauges and one.folder.is_there()

    def _add(self, pid: int) -> Iterator[Happening]:
        try:
            folder = self.programs.folder(pid)
            memory = ProcessMemory(folder)
            name, user = one_line(folder.thread_name(pid), NAME_LIMIT), folder.real_user()
        except (NoTarget, FileNotFoundError, ProcessLookupError):
            # The process has ended since the search.
            return
        except (GdbheapError, OSError) as error:
            self._left_out[pid] = reason_of(error)
            return
        triggers = self.wanted.of_size() if self.cgroup is None else []
        self._gauges.add(_key(pid), lambda: Gauge(memory, triggers, process_wakers(folder), None, SHORTEST_OF_SIZE))
        self.watched[pid] = one = Watched(folder, name, user)
        self._regroup(one)
        self.looks.begin(folder, one.name, user)
        yield Happening("began", pid, one.name)
        if self.wanted.memory_errors:
            yield from self._see_errors(one, memory)

    def _say_left_out(self, known: dict[int, str]) -> Iterator[Happening]:
        """Yield an event for each reason why processes are left out that were not left out at the last search."""
        new = {pid: reason for pid, reason in self._left_out.items() if pid not in known}
        for reason in dict.fromkeys(new.values()):
            pids = [pid for pid, other in new.items() if other == reason]
            yield Happening("left-out", reason=reason, pids=pids)

    def _see_errors(self, one: Watched, memory: ProcessMemory) -> Iterator[Happening]:
        try:
            # Store it before ``start``: if Ctrl-C interrupts, ``end`` must still report code that could not be
            # restored.
            one.errors = errors = MemoryErrors(one.folder, self.wanted.seccomp, self.wanted.limit)
            errors.start()
        except Exception as error:
            yield Happening("unseen", one.pid, one.name, reason=reason_of(error))
            yield from _end_errors(one)
            one.errors = None
            return
        self._gauges.add(_errors_key(one.pid), lambda: Gauge(memory, [Raised()], [errors.waker()]))
        one.gauges.add(_errors_key(one.pid))

    def end(self) -> list[Happening]:
        """Stop watching. Return an event for each process whose code could not be restored."""
        self.looks.end()
        return [happening for one in self.watched.values() for happening in _end_errors(one)]

    def _regroup(self, one: Watched) -> None:
        one.groups = _groups(one.folder)
        one.gauges = {_key(one.pid), *self._of_group}
        if one.errors is not None:
            one.gauges.add(_errors_key(one.pid))
        if self.cgroup is None and self.wanted.at_oom:
            one.gauges |= self._limit_gauges(groups_of(one.folder.place))

    def _forget(self, pid: int) -> Iterator[Happening]:
        """Stop watching a process that is gone. Yield the event that the process ended. If a process of its group was
        killed, yield that event first."""
        gone = self.watched.pop(pid)
        self.looks.forget(pid)
        self._gauges.drop([_key(pid), _errors_key(pid)])
        yield from _end_errors(gone)
        self._gauges.hurry(gone.gauges)
        yield from self._look()
        yield Happening("ended", pid, gone.name)

    def _renew_group(self) -> None:
        """If the watched group is gone, look for a new group of the same name, as a restarted service has."""
        if self.cgroup is None or all(key in self._gauges for key in self._of_group):
            return
        with suppress(OSError):
            self.cgroup = GroupMemory(self.cgroup.folder, self.cgroup.is_exact)
            self._gauges.drop(self._of_group)
            self._of_group = self._group_gauges(self.cgroup)
            for one in self.watched.values():
                self._regroup(one)

    def _group_gauges(self, group: GroupMemory) -> set[str]:
        """Make the gauges for a group that is watched as a whole. Return their keys."""
        triggers = self.wanted.of_size()
        if triggers:
            self._gauges.add(THE_GROUP, lambda: Gauge(group, triggers, (), group.name, SHORTEST_OF_SIZE))
        limits = self._limit_gauges(groups_above(group.folder)) if self.wanted.at_oom else set()
        return limits | ({THE_GROUP} if triggers else set())

    def _limit_gauges(self, groups: Iterable[GroupMemory]) -> set[str]:
        """Make the missing gauges for the limits of these groups and of the machine. Return the keys of all of them."""
        memories: list[GroupMemory | MachineMemory] = [*groups]
        with suppress(OSError):
            memories.append(MachineMemory())
        return {self._limit_gauge(memory) for memory in memories}

    def _limit_gauge(self, memory: GroupMemory | MachineMemory) -> str:
        if isinstance(memory, MachineMemory):
            self._gauges.add(MACHINE, lambda: Gauge(memory, self.wanted.of_limit(), machine_wakers(), memory.name))
            return MACHINE
        key, share = f"group {memory.folder}", self.wanted.share
        self._gauges.add(key, lambda: Gauge(memory, self.wanted.of_limit(), group_wakers(memory, share), memory.name))
        return key


def _end_errors(one: Watched) -> list[Happening]:
    reasons = one.errors.end() if one.errors is not None else []
    return [Happening("unrestored", one.pid, one.name, reason=reason) for reason in reasons]


def _key(pid: int) -> str:
    return f"process {pid}"


def _errors_key(pid: int) -> str:
    return f"errors {pid}"


def _groups(folder: ProcessFolder) -> bytes | None:
    with suppress(OSError):
        return folder.read("cgroup")
    return None
