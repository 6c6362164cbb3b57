"""Watch processes: find them, poll their memory and their control groups, and yield the events."""

from __future__ import annotations

import dataclasses
import itertools
import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from typing import NamedTuple

from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, NoTarget, one_line, reason_of
from gdbheap.files.trust import is_trusted
from gdbheap.host.exit_status import exit_status, oom_kills
from gdbheap.host.procfs import PF_EXITING, ProcessFolder
from gdbheap.refusals import refusal
from gdbheap.refusals.attaching import attach_error
from gdbheap.targets.chosen_processes import Programs
from gdbheap.targets.hits import MAX_STAND
from gdbheap.targets.process import program_of
from gdbheap.watching.action_queue import ActionQueue
from gdbheap.watching.actions import Done, Request
from gdbheap.watching.group_kills import GroupKills
from gdbheap.watching.heap_figures import HeapReader
from gdbheap.watching.memory_errors import MemoryErrors
from gdbheap.watching.memory_readings import GroupMemory, MachineMemory, ProcessMemory, groups_above, groups_of
from gdbheap.watching.polling import LONGEST, SHORTEST_OF_SIZE, PolledMemories, PolledMemory
from gdbheap.watching.triggers import AboveSize, Cause, Grows, MemoryErrorTrigger, NearLimit, RateTrigger, Trigger
from gdbheap.watching.wake_descriptors import Waker, group_wakers, machine_wakers, process_wakers

__all__ = ["WatchEvent", "WatchRequest", "WatchedProcess", "Watcher"]

# The search for processes takes at most this share of one processor. The longest pause between two searches, in
# seconds: of all processes, and of the members of a group.
SCAN_SHARE, MAX_PAUSE, GROUP_PAUSE = 0.01, 3.0, 0.5
# The longest pause between two reads of a process's name, in seconds. A process often runs another program (exec) right
# after its start, and seldom later.
NAME_PAUSE = 120.0
# A watch may take this part of gdbheap's descriptors for its processes: few of them are stopped at the same time.
HELD_SHARE = 2 / 3
NAME_LIMIT = 64
# A kill by the OOM killer counts as the cause of one SIGKILL within this many seconds. A large process takes a while to
# end.
KILL_SECONDS = 10.0
# A program that starts during the watch loads its code and data first. Its growth counts only after this many seconds.
START_UP_SECONDS = 60.0
ONE_USER = "this watch already catches those of another user: start a watch with --user for each user"
THE_GROUP, MACHINE, ROOT_GROUP = "the group", "machine", "/"


@dataclass(frozen=True)
class WatchRequest:
    """The conditions to wait for.

    ``rss``: the RSS has more than this many bytes.
    ``grows``: the memory grows by more than the first number (bytes) within the second (seconds).
    ``at_oom``: a memory limit is near: ``share`` of it is used, or it will be reached within ``within`` seconds.
    ``memory_errors``: Python raises MemoryError. The thread is then stopped for at most ``limit`` seconds.
    ``seccomp``: catch MemoryErrors even under a seccomp filter.
    ``metrics``: measure all limits, even if no condition needs them.
    """

    rss: int | None = None
    grows: tuple[int, float] | None = None
    at_oom: bool = False
    share: float = 0.9
    within: float = 2.0
    memory_errors: bool = False
    seccomp: bool = False
    limit: float = MAX_STAND
    metrics: bool = False

    @property
    def has_limits(self) -> bool:
        """Whether the memory of control groups and of the machine is read."""
        return self.at_oom or self.metrics

    def of_size(self, start: float = 0.0) -> list[Trigger]:
        """Return the conditions on the size of a process, or of a group as a whole. ``start``: from which time on its
        growth counts (``time.monotonic``)."""
        above: list[Trigger] = [] if self.rss is None else [AboveSize(self.rss)]
        return above if self.grows is None else [*above, Grows(*self.grows, start)]

    def of_limit(self) -> list[Trigger]:
        """Return the conditions on memory that has a limit. Without ``at_oom``, its growth is only measured."""
        return [NearLimit(self.share, self.within) if self.at_oom else RateTrigger()]


@dataclass(frozen=True)
class WatchEvent:
    """An event of a watch, before it is reported. ``kind`` has one of these values.

    "began": a process is watched from now on.
    "ended": it is no longer watched.
    "renamed": it has another name.
    "due": act on it, because of ``cause``.
    "killed": the OOM killer killed a process of ``group``.
    "unseen": the process's MemoryErrors cannot be caught.
    "unrestored": the process's code is still changed.
    "missed": a read of the process's heap failed for a new reason.
    "left-out": the processes ``pids`` match but cannot be watched.
    "unreadable": the memory of the processes ``pids`` cannot be read. Each process is reported once.
    "nobody": no process matches yet.
    "acting": the action of ``request`` takes long; ``reason`` is the step that still runs, ``done`` the result so far.
    "acted": the action of ``request`` is finished, with the result ``done``.

    ``reason``: why the event occurred.
    ``status``: the exit status of a process that has ended, negative for a signal, None if unknown.
    ``oom``: whether the OOM killer was active when the process ended.
    """

    kind: str
    pid: int | None = None
    name: str = ""
    cause: Cause | None = None
    group: str | None = None
    reason: str = ""
    pids: Sequence[int] = ()
    status: int | None = None
    oom: bool = False
    request: Request | None = None
    done: Done | None = None


@dataclass
class OomKill:
    """A process that the OOM killer killed. ``time``: when the watch noticed it; ``spared``: the watched processes that
    lived on a moment later, None if that is not known yet."""

    time: float
    spared: frozenset[int] | None = None


class GroupState(NamedTuple):
    """The memory of a control group, or of the machine (``name`` ""), in bytes. An unknown figure is None.

    ``needed``: the bytes that cannot be reclaimed.
    ``mark``: the bytes above which the limit counts as near.
    ``seconds``: the time until the limit is reached, at the current growth rate.
    ``kills``: how many processes the kernel has killed in the group.
    """

    name: str
    needed: int | None = None
    limit: int | None = None
    mark: int | None = None
    seconds: float | None = None
    kills: int | None = None


@dataclass
class WatchedProcess:
    """A watched process.

    ``user``: its real uid.
    ``memory``: the object that reads its size.
    ``pidfd``: the waker that reports its end, None if there is none.
    ``groups``: its control groups, as the kernel's text.
    ``polled``: its keys among the polled memories.
    ``errors``: the object that catches its MemoryErrors, None if they are not caught.
    ``are_errors_paused``: whether they are caught again once the action on the process is finished.
    ``began``, ``name_due``: when gdbheap began to watch it, and when to read its name again (``time.monotonic``).
    """

    folder: ProcessFolder
    name: str
    user: int
    memory: ProcessMemory
    pidfd: Waker | None = None
    groups: bytes | None = None
    polled: set[str] = field(default_factory=set)
    errors: MemoryErrors | None = None
    are_errors_paused: bool = False
    began: float = field(default_factory=time.monotonic)
    name_due: float = 0.0

    @property
    def pid(self) -> int:
        return self.folder.pid

    @property
    def size(self) -> int:
        """The RSS in bytes; 0 once the process has ended."""
        with suppress(OSError):
            return self.memory.read(0).size
        return 0


class Watcher:
    """Waits for the conditions ``wanted`` in each process of ``programs``. If ``cgroup`` is given, waits for them in
    that group as a whole, whose members are the ``programs``.

    ``reader``: reads the processes' heaps from time to time.
    ``queue``: the queue of actions.
    ``until``: when to end (``time.monotonic``).
    ``scanned``: when processes were last searched for.
    """

    def __init__(
        self,
        programs: Programs,
        wanted: WatchRequest,
        cgroup: GroupMemory | None = None,
        reader: HeapReader | None = None,
        queue: ActionQueue | None = None,
        until: float = math.inf,
    ) -> None:
        self.programs, self.wanted, self.cgroup, self.queue = programs, wanted, cgroup, queue
        programs.share = HELD_SHARE
        self.reader = reader if reader is not None else HeapReader(None, None)
        self.watched: dict[int, WatchedProcess] = {}
        self._polled = PolledMemories()
        self._group_kills = GroupKills()
        self._of_group = self._poll_group(cgroup) if cgroup is not None else set()
        self._left_out: dict[int, str] = {}
        barred = attach_error()
        # The message for each process if gdbheap can attach to none, for example because a seccomp filter refuses
        # ptrace.
        self._barred = None if barred is None else f"gdbheap can attach to no process ({barred.strerror}): run doctor"
        self._next_scan = self.scanned = 0.0
        self._kill_count, self._kills = oom_kills(), deque[OomKill]()
        self._until = until
        self._is_started = False
        # A function that is called before each wait: at least every few seconds.
        self.idle: Callable[[], object] = lambda: None

    @property
    def is_over(self) -> bool:
        """Whether no process is left to watch and no new one can appear."""
        return not self.watched and not self.programs.may_grow

    def limits(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the limits of the polled memories with these keys, in bytes, by the name of the control group; ""
        stands for the machine."""
        if not self.wanted.at_oom:
            return {}
        found = {polled.group: _limit(polled) for polled in self._polled.with_keys(keys)}
        return {group: limit for group, limit in found.items() if group is not None and limit is not None}

    @property
    def groups(self) -> list[GroupState]:
        """The memory of the control groups and of the machine, at the last reading. The root group of version 1 is left
        out: it has no limit, and its count may lack the groups below it."""
        return [
            _state(polled.group, polled, trigger, self.wanted.share)
            for polled in list(self._polled)
            for trigger in polled.triggers
            if polled.group not in (None, ROOT_GROUP) and isinstance(trigger, RateTrigger)
        ]

    def events(self) -> Iterator[WatchEvent]:
        """Yield all events, until no process is left to watch or the time is over, and all actions are finished."""
        yield from self._scan()
        self._is_started = True
        if not self.watched and not self._left_out and self.programs.may_grow:
            yield WatchEvent("nobody")
        while not (is_over := self.is_over or time.monotonic() >= self._until) or self._is_acting:
            ready = self._wait(is_over)
            if not is_over:
                yield from self._read_polled()
            yield from self._finished(ready)
            yield from self._turn(ready)
            if not is_over and time.monotonic() >= self._next_scan:
                yield from self._scan()

    @property
    def _is_acting(self) -> bool:
        return self.queue is not None and self.queue.is_busy

    def _is_acting_on(self, one: WatchedProcess) -> bool:
        return self.queue is not None and self.queue.has(one.pid)

    def _wait(self, is_over: bool) -> set[int]:
        """Wait until a read, an action or a memory is due. Return the readable descriptors of reads and actions."""
        queue, reader = self.queue, self.reader
        self.idle()
        self.reader.leaving.turn()
        due = [] if is_over else [self._next_scan, self._until]
        due += [] if queue is None else [queue.due]
        due += [] if queue is not None and queue.is_saving else [reader.due]
        also = [*([] if reader.descriptor is None else [reader.descriptor]), *(queue.descriptors if queue else [])]
        return self._polled.wait(min(due, default=math.inf), also)

    def _finished(self, ready: set[int]) -> Iterator[WatchEvent]:
        """Start actions. Yield an event for each action that is finished, and for each action that takes long."""
        if self.queue is None:
            return
        for request, done in self.queue.turn(ready):
            yield _acted(request, done)
            # The search catches MemoryErrors again that an action has paused.
            self._next_scan = 0.0
        for request, done, step in self.queue.slow():
            yield dataclasses.replace(_acted(request, done), kind="acting", reason=step)

    def _read_polled(self) -> Iterator[WatchEvent]:
        for key, polled, found in self._polled.read():
            if found is None:
                # A process has ended, or the processes of a group have ended or moved to another group.
                self._next_scan = 0.0
                continue
            # With a condition on its size and one on its limit, a group is read for each of them.
            if found.killed and not (key == THE_GROUP and self.wanted.has_limits):
                yield WatchEvent("killed", group=polled.group)
            for cause in found.causes:
                yield from self._due(key, polled, cause)

    def _turn(self, ready: set[int]) -> Iterator[WatchEvent]:
        """Start the heap reads that are due, unless an action is writing its files, and collect those that finished.

        Yield an event for each read that failed.
        """
        may_start = self.queue is None or not self.queue.is_saving
        for pid, reason in self.reader.turn(self.reader.descriptor in ready, may_start):
            yield WatchEvent("missed", pid, self.reader.seen[pid].name, reason=reason)

    def _due(self, key: str, polled: PolledMemory, cause: Cause) -> Iterator[WatchEvent]:
        """Yield the event to act on the largest process that uses the memory.

        In a control group, this may be a process that started only now.
        """
        if self.cgroup is not None:
            yield from self._join(self.programs.now())
        concerned = [(one.size, pid) for pid, one in self.watched.items() if key in one.polled]
        size, pid = max(concerned, default=(0, 0))
        if size:
            self._renew_name(self.watched[pid])
            yield WatchEvent("due", pid, self.watched[pid].name, dataclasses.replace(cause, cgroup=polled.group))

    def _scan(self) -> Iterator[WatchEvent]:
        """Search for processes. Yield an event for each process that has appeared or ended, and note which processes
        moved to another group."""
        began, used = time.monotonic(), time.thread_time()
        now = self.programs.now()
        self.scanned = began
        # If a process has ended, its id may have been reused.
        for pid in [pid for pid, one in self.watched.items() if not self._is_seen(one, now)]:
            yield from self._forget(pid)
        self._renew_group()
        for one in list(self.watched.values()):
            # The kernel moves a process that is ending to the root group (version 1): its kill belongs to the old one.
            if _groups(one.folder) != one.groups and one.size:
                self._regroup(one)
            if one.are_errors_paused and not self._is_acting_on(one) and not refusal.other_tracer(one.folder):
                yield from self._see_errors(one, one.memory)
            if began >= one.name_due and self._renew_name(one):
                yield WatchEvent("renamed", one.pid, one.name)
        yield from self._join(now)
        now_used = [key for one in self.watched.values() for key in one.polled]
        self._polled.keep([*now_used, *self._of_group])
        self._spare()
        self._count_kills()
        # Only processor time counts: the search may also have waited.
        pause = (time.thread_time() - used) / SCAN_SHARE
        self._next_scan = began + (GROUP_PAUSE if self.cgroup is not None else min(MAX_PAUSE, max(LONGEST, pause)))

    def _join(self, now: Sequence[int]) -> Iterator[WatchEvent]:
        """Begin to watch each of these processes that is not watched yet, and yield an event for it."""
        known, self._left_out = self._left_out, {}
        refused: dict[int, str] = {}
        for pid in now:
            if pid not in self.watched:
                yield from self._add(pid, refused)
        yield from self._say_left_out(known)
        if refused:
            yield WatchEvent("unreadable", reason=next(iter(refused.values())), pids=[*refused])

    def _is_seen(self, one: WatchedProcess, now: Sequence[int]) -> bool:
        """Return whether the watched process still runs, and its id has not been reused. A process that is ending
        counts as running until its descriptor reports the end, because only then its exit status is known.
        """
        if _key(one.pid) not in self._polled or not one.folder.is_there():
            return False
        return one.pid in now or (not one.size and one.memory.is_ending and one.folder.is_running())

    def _add(self, pid: int, refused: dict[int, str]) -> Iterator[WatchEvent]:
        """Watch a process. ``refused`` gets the reason if its memory cannot be read."""
        try:
            folder = self.programs.folder(pid)
            memory = ProcessMemory(folder)
            memory.read(0)
            if memory.is_ending:
                return
            name = _name(folder) or one_line(folder.thread_name(pid), NAME_LIMIT)
            user = folder.real_user()
        except (NoTarget, FileNotFoundError, ProcessLookupError):
            # This process has ended since the search.
            return
        except (GdbheapError, OSError) as error:
            self._left_out[pid] = reason_of(error)
            return
        start = time.monotonic() + START_UP_SECONDS if self._is_started else 0.0
        triggers = self.wanted.of_size(start) if self.cgroup is None else []
        wakers = process_wakers(folder)
        self._polled.add(_key(pid), lambda: PolledMemory(memory, triggers, wakers, None, SHORTEST_OF_SIZE))
        self.watched[pid] = one = WatchedProcess(folder, name, user, memory, next(iter(wakers), None))
        self._regroup(one)
        self.reader.begin(folder, one.name, user, one.groups or b"")
        yield WatchEvent("began", pid, one.name)
        reason = self._barred or unreadable(folder)
        if reason is not None:
            refused[pid] = reason
        if self.wanted.memory_errors:
            yield from self._see_errors(one, memory)

    def _renew_name(self, one: WatchedProcess) -> bool:
        """Read the name of a process again: it may run another program since it was found. Return whether the name has
        changed."""
        now = time.monotonic()
        one.name_due = now + min(NAME_PAUSE, max(LONGEST, now - one.began))
        with suppress(GdbheapError, OSError):
            # A process that is ending has no name any more.
            name = _name(one.folder) or one.name
            if name != one.name:
                one.name = name
                self.reader.rename(one.pid, name, one.groups or b"")
                return True
        return False

    def _say_left_out(self, known: dict[int, str]) -> Iterator[WatchEvent]:
        """Yield an event for each reason why processes are left out. Processes that were already left out at the last
        search do not count.
        """
        new = {pid: reason for pid, reason in self._left_out.items() if pid not in known}
        for reason in dict.fromkeys(new.values()):
            pids = [pid for pid, other in new.items() if other == reason]
            yield WatchEvent("left-out", reason=reason, pids=pids)

    def pause_errors(self, one: WatchedProcess) -> list[WatchEvent]:
        """Stop catching the MemoryErrors of a process until an action on it is finished, because only one process can
        trace it. Return an event if its code could not be restored.
        """
        events = _end_errors(one)
        one.errors, one.are_errors_paused = None, True
        self._polled.drop([_errors_key(one.pid)])
        one.polled.discard(_errors_key(one.pid))
        return events

    def _see_errors(self, one: WatchedProcess, memory: ProcessMemory) -> Iterator[WatchEvent]:
        one.are_errors_paused = False
        if self._would_mix_users(one):
            yield WatchEvent("unseen", one.pid, one.name, reason=ONE_USER)
            return
        try:
            # Store it before ``start``: if Ctrl-C interrupts, ``end`` must still report code that could not be
            # restored.
            one.errors = errors = MemoryErrors(one.folder, self.wanted.seccomp, self.wanted.limit)
            errors.start()
        except Exception as error:
            yield WatchEvent("unseen", one.pid, one.name, reason=reason_of(error))
            yield from _end_errors(one)
            # The next search tries again once no other program traces the process.
            one.errors, one.are_errors_paused = None, refusal.other_tracer(one.folder) != 0
            return
        self._polled.add(_errors_key(one.pid), lambda: PolledMemory(memory, [MemoryErrorTrigger()], [errors.waker()]))
        one.polled.add(_errors_key(one.pid))

    def _would_mix_users(self, one: WatchedProcess) -> bool:
        """Return whether catching the MemoryErrors of this process, too, would let two users disturb each other: a
        process can end all catching of its watch (docs/safety.md). Root and gdbheap's own user disturb nobody."""
        others = {other.user for other in self.watched.values() if other.errors is not None or other.are_errors_paused}
        return not is_trusted(one.user) and not all(user == one.user or is_trusted(user) for user in others)

    def end(self) -> list[WatchEvent]:
        """Stop watching. Return an event for each action that was not finished, and for each process whose code could
        not be restored.
        """
        self.reader.end()
        abandoned = self.queue.end() if self.queue is not None else []
        unrestored = [event for one in self.watched.values() for event in _end_errors(one)]
        return [*itertools.starmap(_acted, abandoned), *unrestored]

    def _regroup(self, one: WatchedProcess) -> None:
        self._group_kills.leave(one.groups)
        one.groups = _groups(one.folder)
        self._group_kills.enter(one.groups, one.folder.place)
        one.polled = {_key(one.pid), *self._of_group}
        self.reader.rename(one.pid, one.name, one.groups or b"")
        if one.errors is not None:
            one.polled.add(_errors_key(one.pid))
        if self.cgroup is None and self.wanted.has_limits:
            one.polled |= self._poll_limits(groups_of(one.folder.place))

    def _forget(self, pid: int) -> Iterator[WatchEvent]:
        """Stop watching a process that is gone. Yield the event that the process ended. If a process of its group was
        killed, yield that event first."""
        gone = self.watched.pop(pid)
        status = exit_status(gone.folder, None if gone.pidfd is None else gone.pidfd.descriptor)
        is_oom = status == -signal.SIGKILL and self._is_oom(gone)
        self._group_kills.leave(gone.groups)
        self.reader.forget(pid)
        self._polled.drop([_key(pid), _errors_key(pid)])
        yield from _end_errors(gone)
        self._polled.hurry(gone.polled)
        yield from self._read_polled()
        yield WatchEvent("ended", pid, gone.name, status=status, oom=is_oom)

    def _count_kills(self) -> None:
        """Record when the OOM killer killed processes, and drop old records."""
        now, before, self._kill_count = time.monotonic(), self._kill_count, oom_kills()
        self._kills.extend(OomKill(now) for _ in range(self._kill_count - before))
        while self._kills and now - self._kills[0].time > KILL_SECONDS:
            self._kills.popleft()

    def _spare(self) -> None:
        """Record for the kills of the last search which processes live on: they were not killed."""
        new = [kill for kill in self._kills if kill.spared is None]
        if new:
            spared = frozenset(pid for pid, one in self.watched.items() if not _is_dying(one.folder))
            for kill in new:
                kill.spared = spared

    def _is_oom(self, gone: WatchedProcess) -> bool:
        """Return whether the OOM killer has killed a process of the same groups for which no event is reported yet. If
        so, the caller must report an event: the kill counts as reported from now on."""
        self._count_kills()
        kill = next((kill for kill in self._kills if gone.pid not in (kill.spared or ())), None)
        if kill is None or not self._group_kills.take(gone.groups):
            return False
        self._kills.remove(kill)
        return True

    def _renew_group(self) -> None:
        """If the watched group no longer exists, look for a new group of the same name. A restarted service has one."""
        if self.cgroup is None or all(key in self._polled for key in self._of_group):
            return
        with suppress(OSError):
            self.cgroup = GroupMemory(self.cgroup.folder, self.cgroup.is_exact)
            self._polled.drop(self._of_group)
            self._of_group = self._poll_group(self.cgroup)
            for one in self.watched.values():
                self._regroup(one)

    def _poll_group(self, group: GroupMemory) -> set[str]:
        """Make the polled memories for a group that is watched as a whole. Return their keys."""
        self._group_kills.begin(group.folder)
        triggers = self.wanted.of_size()
        if triggers:
            self._polled.add(THE_GROUP, lambda: PolledMemory(group, triggers, (), group.name, SHORTEST_OF_SIZE))
        limits = self._poll_limits(groups_above(group.folder)) if self.wanted.has_limits else set()
        return limits | ({THE_GROUP} if triggers else set())

    def _poll_limits(self, groups: Iterable[GroupMemory]) -> set[str]:
        """Poll the memories of these groups, and of the machine, against their limits. Return all keys."""
        memories: list[GroupMemory | MachineMemory] = [*groups]
        with suppress(OSError):
            memories.append(MachineMemory())
        return {self._poll_limit(memory) for memory in memories}

    def _poll_limit(self, memory: GroupMemory | MachineMemory) -> str:
        if isinstance(memory, MachineMemory):
            self._polled.add(
                MACHINE, lambda: PolledMemory(memory, self.wanted.of_limit(), machine_wakers(), memory.name)
            )
            return MACHINE
        key, share = f"group {memory.folder}", self.wanted.share
        memory.is_exact = self.wanted.metrics
        self._polled.add(
            key, lambda: PolledMemory(memory, self.wanted.of_limit(), group_wakers(memory, share), memory.name)
        )
        return key


def _limit(polled: PolledMemory) -> int | None:
    """Return the limit of a polled memory; None if there is no limit, or if the memory no longer exists."""
    with suppress(OSError):
        return polled.memory.limit
    return None


def _state(name: str, polled: PolledMemory, rate: RateTrigger, share: float) -> GroupState:
    reading = polled.last
    if reading is None:
        return GroupState(name)
    mark = None if reading.limit is None else int(share * reading.limit)
    return GroupState(name, reading.size, reading.limit, mark, rate.seconds_left(reading), polled.memory.kills)


def _acted(request: Request, done: Done) -> WatchEvent:
    group = request.cause.cgroup
    return WatchEvent("acted", request.pid, request.name, request.cause, group, request=request, done=done)


def _end_errors(one: WatchedProcess) -> list[WatchEvent]:
    reasons = one.errors.end() if one.errors is not None else []
    return [WatchEvent("unrestored", one.pid, one.name, reason=reason) for reason in reasons]


def _name(folder: ProcessFolder) -> str:
    """Return the name of a process's program; "" if the kernel does not show it."""
    return one_line(program_of(folder), NAME_LIMIT)


def _key(pid: int) -> str:
    return f"process {pid}"


def _errors_key(pid: int) -> str:
    return f"errors {pid}"


def unreadable(folder: ProcessFolder) -> str | None:
    """Return why the memory of a process cannot be read; None if it can."""
    try:
        folder.check_memory()
    except OSError as error:
        explained = refusal.explain(folder, error)
        return None if isinstance(explained, NoTarget) else reason_of(explained)
    return None


def _is_dying(folder: ProcessFolder) -> bool:
    """Return whether a process has got SIGKILL, or has ended."""
    with suppress(OSError):
        status = folder.status()
        pending = int(status.get("SigPnd", "0"), 16) | int(status.get("ShdPnd", "0"), 16)
        return bool(pending >> signal.SIGKILL - 1 & 1) or bool(folder.flags() & PF_EXITING)
    return True


def _groups(folder: ProcessFolder) -> bytes | None:
    with suppress(OSError):
        return folder.read("cgroup")
    return None
