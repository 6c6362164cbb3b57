"""``gdbheap watch``: wait for a memory limit, then save a snapshot or other files."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import re
import shlex
import sys
import time
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import PROCESSES
from gdbheap.commands.surface.options import (
    Several,
    Writing,
    duration,
    number_or_all,
    switch,
    under_seccomp,
    user_name,
    valued,
    whole_number,
)
from gdbheap.commands.surface.progress import tell, tell_folder
from gdbheap.commands.surface.session import TargetInfo
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, NoTarget, NotPermitted, UsageError, one_line
from gdbheap.machines.machine import THIS_MACHINE
from gdbheap.report.formats.json import document, text_of
from gdbheap.report.text.numbers import counted, parse_duration, parse_size
from gdbheap.report.text.style import style_for, terminal_text
from gdbheap.report.words.watch import counts_text, event_text, started_text
from gdbheap.watching.messages import Limit, WatchMessage
from gdbheap.watching.standard_output import LineOutput
from gdbheap.watching.triggers import MEMORY_ERROR, Bounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from gdbheap.first_page.main_holders import MainHolders
    from gdbheap.heap import Heap
    from gdbheap.host.procfs import ProcessFolder
    from gdbheap.stack_frames import StackFrame
    from gdbheap.targets.chosen_processes import Programs
    from gdbheap.targets.process import Preparation
    from gdbheap.watching.child import EndingChildren
    from gdbheap.watching.heap_figures import HeapReader
    from gdbheap.watching.memory_readings import GroupMemory
    from gdbheap.watching.metrics import Now
    from gdbheap.watching.prometheus import Address, Server
    from gdbheap.watching.watcher import WatchEvent

__all__ = ["COMMAND"]

NAME = "gdbheap watch"
HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
# For at most this many processes, the data that a stop needs is prepared.
PREPARED = 4
HIGHEST_PRIORITY = -20
# If --max-stop sets no limit, a thread is stopped for at most this many seconds.
LONGEST_STAND = 3600.0
# The first lines about processes that began or ended are printed at once; after these, one in LINE_SECONDS.
LINES, LINE_SECONDS = 40, 60.0
# The default number of seconds between two reads of a heap for --prometheus.
DEFAULT_PAUSE = 300.0


def _growth(text: str) -> tuple[int, float]:
    """Parse a growth rate, such as "100M/10m". Return (bytes, seconds). Raises ValueError."""
    size, slash, duration = text.partition("/")
    if not slash:
        raise ValueError(f"{text!r} is not a valid growth: give a size and a duration, such as 100M/10m")
    seconds = parse_duration(duration)
    if not seconds:
        raise ValueError(f"{text!r} is not a valid growth: the duration must not be 0")
    return parse_size(size), seconds


def _share(text: str) -> float:
    """Parse a percentage, such as "90%" or "90". Return a share, such as 0.9. Raises ValueError."""
    number = text.removesuffix("%")
    if not number.isascii() or not number.isdecimal() or not 1 <= int(number) <= 99:
        raise ValueError(f"{text!r} is not a valid share of a limit: give 1% to 99%")
    return int(number) / 100


def _positive(text: str) -> int:
    """Parse a number of at least 1. Raises ValueError."""
    number = whole_number(text)
    if not number:
        raise ValueError("the number must be at least 1")
    return number


def _address(text: str) -> Address:
    """Parse an address to listen at, [HOST]:PORT. Raises ValueError."""
    # Imported on use, because it imports an HTTP server.
    from gdbheap.watching.prometheus import address_of

    return address_of(text)


def _names(text: str) -> tuple[str, ...]:
    """Parse host names as they appear in a URL, without a port. Raises ValueError."""
    names = tuple(text.split(","))
    for name in names:
        if not HOST_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a host name such as metrics.example.org (without a port)")
    return names


def _words(text: str) -> tuple[str, ...]:
    """Split a command line as a shell does. Raises ValueError."""
    words = tuple(shlex.split(text))
    if not words:
        raise ValueError("the command is empty")
    return words


@dataclass
class Options(Several, Writing):
    """The options of ``gdbheap watch``: the conditions to wait for, the actions to take, how often to act, and when to
    end.
    """

    rss: int | None = valued("--rss", "SIZE", "act when RSS exceeds SIZE", None, parse_size)
    grows: tuple[int, float] | None = valued(
        "--grows", "SIZE/TIME", "act if memory grows by SIZE in TIME (100M/10m)", None, _growth
    )
    at_oom: bool = switch("--at-oom", "act before the cgroup or machine runs out of memory")
    on_memory_error: bool = switch("--on-memory-error", "act before Python raises MemoryError")
    seccomp: bool = under_seccomp()
    mark: float = valued("--mark", "PERCENT", "act at PERCENT of the limit (--at-oom) [default: 90%]", 0.9, _share)
    within: float = valued(
        "--within",
        "TIME",
        "act if full within TIME (--at-oom) [default: 2s]",
        2.0,
        parse_duration,
    )
    output: str = valued("--output", "FOLDER", "write files into FOLDER [default: current folder]", "", str)
    keep: int | None = valued("--keep", "N", "keep the files of N actions in FOLDER [default: all]", None, _positive)
    no_snapshot: bool = switch("--no-snapshot", "take no snapshot")
    blocks: bool = switch("--blocks", "keep a list of all blocks in the snapshot")
    heap: bool = switch("--heap", "save the answer of 'heap --json', too")
    core: bool = switch("--core", "let gdb write a core, too")
    run: tuple[str, ...] = valued("--run", "COMMAND", "run COMMAND after each action", (), _words)
    run_limit: float = valued(
        "--run-limit", "TIME", "end COMMAND after TIME; 0: never [default: 60s]", 60.0, parse_duration
    )
    count: int = valued(
        "--count",
        "N",
        "act N times in all; 0 or 'all': no limit [default: 1]",
        1,
        number_or_all("a number of actions, or 'all'"),
    )
    again: float = valued("--again", "TIME", "act on a process once every TIME [default: 10m]", 600.0, parse_duration)
    duration: float | None = duration("end the watch after TIME [default: no limit]")
    prometheus: Address | None = valued("--prometheus", "[HOST]:PORT", "serve metrics to Prometheus", None, _address)
    prometheus_host: tuple[str, ...] = valued(
        "--prometheus-host", "NAME", "accept requests that name these hosts, too", (), _names
    )
    prometheus_sum: bool = switch("--prometheus-sum", "sum the metrics of a service (no pids)")
    look_every: float | None = valued(
        "--look-every", "TIME", "read heaps every TIME; 0: never [default: 5m]", None, parse_duration
    )

    @property
    def acts(self) -> bool:
        """Whether the options set a condition for an action. A watch without one only serves metrics."""
        return self.rss is not None or self.grows is not None or self.at_oom or self.on_memory_error


class _Watch:
    """One run of the command, which waits, acts, and prints events."""

    def __init__(self, programs: Programs, options: Options) -> None:
        # Imported on use, so that other commands start faster.
        from gdbheap.watching.action_queue import ActionQueue
        from gdbheap.watching.actions import Actions, check
        from gdbheap.watching.child import EndingChildren
        from gdbheap.watching.watcher import Watcher, WatchRequest

        self.options = options
        self.actions = Actions(
            options.output or ".", not options.no_snapshot, options.blocks, options.heap, options.core, options.run,
            options.run_limit, options.max_stop or None, _heap_document, options.mode, options.keep,
        )  # fmt: skip
        self.bounds = Bounds(options.count or None, options.again)
        wanted = WatchRequest(
            options.rss, options.grows, options.at_oom, options.mark, options.within, options.on_memory_error,
            options.seccomp, options.max_stop or LONGEST_STAND, options.prometheus is not None,
        )  # fmt: skip
        leaving = EndingChildren()
        self.reader = _heap_reader(options, leaving)
        self.queue = ActionQueue(self.actions, leaving)
        if options.acts:
            check(self.actions)
            if not options.output and self.queue.saves:
                tell_folder()
        until = math.inf if options.duration is None else time.monotonic() + options.duration
        self.watcher = Watcher(programs, wanted, _group(options), self.reader, self.queue, until)
        self.lines = _Lines()
        self._named_limits: set[Limit] = set()
        self._output: LineOutput | None = None
        self.prepared: dict[int, Preparation] = {}
        self.acted = self.failed = self.ended = self.killed = 0
        self._is_warned = False
        self.style = style_for(None, options.exact, None)
        self.watcher.idle = self._idle
        # From now on, the server may get requests.
        self.server = _server(options, self._now)

    def run(self) -> WatchMessage:
        """Watch until the watch is over, and return its last event. Ctrl-C and SIGTERM end the watch."""
        if self.options.at_oom:
            # Milliseconds matter, even if other programs use all processors. Not every user may raise the priority.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_PRIORITY)
        why = ""
        try:
            why = self._watch()
        except KeyboardInterrupt:
            why = "asked"
        finally:
            for watch_event in self.watcher.end():
                self._tell_event(watch_event)
            self._tell_many()
            end = WatchMessage("end", time.time(), acted=self.acted, failed=self.failed, why_ended=why)
            if why:
                # The reader of the last line may be stuck, too.
                self._tell(end)
                self.options.is_printed = True
            if self._output is not None:
                self._output.end()
            if self.server is not None:
                self.server.end()
        # Lines may have been lost until now.
        return dataclasses.replace(end, failed=self.failed)

    def _now(self) -> Now:
        """Return the current state for the metrics. This method is called in another thread."""
        from gdbheap.watching.metrics import Now

        sizes = {pid: one.size for pid, one in list(self.watcher.watched.items())}
        seen = [(one, sizes[one.pid]) for one in list(self.reader.seen.values()) if sizes.get(one.pid)]
        return Now(
            seen, self.ended, self.acted, self.failed, self.killed, time.monotonic() - self.watcher.scanned,
            self.watcher.groups, self.options.prometheus_sum, list(self.reader.gone.values()),
        )  # fmt: skip

    def _watch(self) -> str:
        if self.server is not None:
            self._tell(WatchMessage("serving", time.time(), url=self.server.url, everybody=not self.server.is_loopback))
        if self.options.acts and not self.options.json:
            self._print(self._started())
        for watch_event in self.watcher.events():
            self._tell_event(watch_event)
            if self.server is None and not self.queue.is_busy and self.bounds.is_used_up(self._users()):
                return "count"
        return "ended" if self.watcher.is_over else "duration"

    def _started(self) -> str:
        options, is_group = self.options, self.watcher.cgroup is not None
        count = None if options.prometheus is not None else options.count or None
        is_by_user = not is_group and options.name is not None
        return started_text(time.time(), self.watcher.wanted, is_group, count, is_by_user, self.style)

    def _tell_event(self, watch_event: WatchEvent) -> None:
        event = self._event(watch_event)
        if event is not None:
            self._tell(event)

    def _event(self, watch_event: WatchEvent) -> WatchMessage | None:
        """Return the event to print for an event of the watcher; None if nothing is printed. If its kind is "due",
        request the actions."""
        pid = watch_event.pid
        if watch_event.kind == "due":
            self._request(watch_event)
            return None
        if watch_event.kind == "acted":
            return self._acted(watch_event)
        if watch_event.kind == "acting" and watch_event.done is not None:
            files, now = {**watch_event.done.files}, time.time()
            cause, group, step = watch_event.cause, watch_event.group, watch_event.reason
            return WatchMessage("acting", now, pid, watch_event.name, cause, group, files, step=step)
        if watch_event.kind == "renamed" and pid is not None:
            # The process probably runs another program now.
            if pid in self.prepared and self._preparation(pid) is None:
                self._prepare(pid)
            return None
        if watch_event.kind == "nobody":
            return WatchMessage("nobody", time.time())
        if watch_event.kind == "began" and pid is not None:
            self._prepare(pid)
            self._warn_of_users()
            limits = self._limits(pid)
            return WatchMessage("began", time.time(), pid, watch_event.name, limits=limits)
        if watch_event.kind in ("unseen", "unrestored", "missed"):
            self.failed += 1
            return WatchMessage(watch_event.kind, time.time(), pid, watch_event.name, errors=[watch_event.reason])
        if watch_event.kind in ("left-out", "unreadable"):
            self.failed += 1
            return WatchMessage(watch_event.kind, time.time(), errors=[watch_event.reason], pids=[*watch_event.pids])
        self.ended += watch_event.kind == "ended"
        self.killed += watch_event.oom
        self.prepared.pop(pid or 0, None)
        self.bounds.forget(pid or 0)
        return WatchMessage(
            watch_event.kind, time.time(), pid, watch_event.name, cgroup=watch_event.group,
            exit_status=watch_event.status, oom=watch_event.oom,
        )  # fmt: skip

    def _request(self, watch_event: WatchEvent) -> None:
        """Request the actions on a process, unless they are in progress, or ``bounds`` allows no further action now."""
        from gdbheap.watching.actions import Request
        from gdbheap.watching.child import read_seconds

        pid, cause = watch_event.pid, watch_event.cause
        if pid is None or cause is None:
            return
        one = self.watcher.watched[pid]
        errors = one.errors if cause.kind == MEMORY_ERROR else None
        if self.queue.has(pid, None if errors is None else MEMORY_ERROR):
            return
        standing = errors.standing() if errors is not None else []
        user = None if self.watcher.cgroup else one.user
        if not self.bounds.allow(pid, time.monotonic(), user, cause.is_urgent):
            if errors is not None:
                errors.go_on()
            return
        self.reader.give_way()
        if one.errors is not None and errors is None and self.queue.saves:
            for unrestored in self.watcher.pause_errors(one):
                self._tell_event(unrestored)
        stack = errors.stack() if errors is not None else list
        prepared = errors.preparation if errors is not None else self._preparation(pid)
        seconds = read_seconds(one.size, len({other.user for other in self.watcher.watched.values()}))
        cause = dataclasses.replace(cause, cgroup=watch_event.group or cause.cgroup)
        self.queue.add(
            Request(one.folder, watch_event.name, cause, prepared, standing, seconds, time.time(), stack, user)
        )

    def _acted(self, watch_event: WatchEvent) -> WatchMessage | None:
        """Return the event for finished actions; None if ``watch_event`` lacks data.

        If a thread was stopped because it was about to raise MemoryError, let it continue."""
        request, done, pid = watch_event.request, watch_event.done, watch_event.pid
        if request is None or done is None or pid is None:
            return None
        one = self.watcher.watched.get(pid)
        if one is not None and one.errors is not None and request.cause.kind == MEMORY_ERROR:
            one.errors.go_on()
        if done.is_to_repeat:
            self.bounds.give_back(pid, time.monotonic(), request.user, request.cause.is_urgent)
        else:
            self.bounds.has_acted(pid, request.cause.is_urgent)
            self.acted += 1
        # A process that ended before it was read is not a failure.
        self.failed += bool(done.errors) and not done.is_too_late
        held = done.held
        if request.cause.kind == MEMORY_ERROR:
            # The thread stood until now, or until the limit released it.
            held = min(time.time() - request.time, self.options.max_stop or LONGEST_STAND)
        self.reader.held(pid, held)
        return WatchMessage(
            "acted", time.time(), pid, watch_event.name, request.cause, watch_event.group, done.files, done.errors,
            held, done.partial, done.run, stack=_named(request.stack), too_late=done.is_too_late,
        )  # fmt: skip

    def _users(self) -> set[int | None]:
        """Return the users whose processes may still need actions of the watch. If a control group is watched as a
        whole, None stands for all users.
        """
        return {None} if self.watcher.cgroup else {one.user for one in self.watcher.watched.values()}

    def _warn_of_users(self) -> None:
        """Warn once if --name matches processes of several users and --user is not given."""
        users = {one.user for one in self.watcher.watched.values()}
        if self.options.name is None or self.options.user is not None or self._is_warned or len(users) < 2:
            return
        self._is_warned = True
        names = one_line(", ".join(sorted(map(user_name, users))))
        tell(f"--name matches processes of {len(users)} users ({names}): --user=USER watches one user's", anyway=True)

    def _prepare(self, pid: int) -> None:
        """Read the data that a later stop of the process needs, because there is no time for that when
        memory runs out.
        """
        from gdbheap.targets.process import Preparation

        if not self.options.at_oom or len(self.prepared) >= PREPARED:
            return
        try:
            self.prepared[pid] = preparation = Preparation(self.watcher.watched[pid].folder)
            preparation.load_files()
        except (GdbheapError, OSError):
            self.prepared.pop(pid, None)

    def _preparation(self, pid: int) -> Preparation | None:
        """Return the data that was read for a process in advance; None if there is none, or if the process now runs
        another program."""
        with contextlib.suppress(OSError):
            prepared = self.prepared.get(pid)
            if prepared is None or prepared.renew():
                return prepared
        self.prepared.pop(pid, None)
        return None

    def _limits(self, pid: int) -> list[Limit]:
        """Return the memory limits under which a process runs: those of its control groups, and the machine's memory.
        Empty without --at-oom.
        """
        from gdbheap.watching.memory_readings import groups_of

        if not self.options.at_oom:
            return []
        ours = {group.name for group in groups_of("self")}
        share = self.options.mark
        limits = self.watcher.limits(self.watcher.watched[pid].polled).items()
        return [Limit(group, size, int(share * size), group in ours) for group, size in limits]

    def _tell(self, event: WatchMessage) -> None:
        """Print an event. In text output, each limit is printed only once, and processes that begin and end in large
        numbers are only counted.
        """
        if self.options.json:
            self._print(text_of(document(NAME, [], [], [], event)))
        elif self.lines.allow(event, time.monotonic()):
            self._tell_many()
            new = [limit for limit in event.limits if limit not in self._named_limits]
            self._named_limits.update(new)
            self._print(event_text(dataclasses.replace(event, limits=new), self.style))

    def _idle(self) -> None:
        """Print what waits to be printed. This method is called at least every few seconds."""
        if self.lines.is_count_due(time.monotonic()):
            self._tell_many()
        if self._output is not None:
            self._output.flush()

    def _tell_many(self) -> None:
        """Print how many processes began and ended without lines of their own."""
        lines = self.lines
        if lines.has_counted:
            self._print(counts_text(time.time(), lines.began, lines.ended, lines.too_late))
            lines.began = lines.ended = lines.too_late = 0

    def _print(self, line: str) -> None:
        """Print a line: text on standard error, JSON on standard output. A reader that is stuck delays nothing."""
        stream = sys.stdout if self.options.json else sys.stderr
        # If the reader of the output is gone, the watch goes on.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if self._output is None:
                stream.flush()
                self._output = LineOutput(stream.fileno(), self._lost)
            self._output.add(_encoded(line, stream.encoding))

    def _lost(self, count: int) -> bytes:
        """Return the line that reports ``count`` dropped lines. Lines are dropped while nothing reads the output."""
        self.failed += 1
        reason = (
            f"{counted(count, 'line')} of the watch {'was' if count == 1 else 'were'} lost: nothing read its output"
        )
        event = WatchMessage("lost", time.time(), errors=[reason])
        text = text_of(document(NAME, [], [], [], event)) if self.options.json else event_text(event, self.style)
        return _encoded(text, (sys.stdout if self.options.json else sys.stderr).encoding)


def _encoded(line: str, encoding: str | None) -> bytes:
    """Return a line as bytes for a stream of this encoding."""
    return terminal_text(f"{line}\n", encoding).encode(encoding or "utf-8", "replace")


@dataclass
class _Lines:
    """Decides which events are printed as lines of their own. Processes that begin and end in large numbers are only
    counted.

    ``began``, ``ended``: how many processes have begun and ended without a line since the last count was printed.
    ``too_late``: how many ended without a line before an action could read them.
    """

    began: int = 0
    ended: int = 0
    too_late: int = 0
    _left: float = LINES
    _last: float = 0.0

    def allow(self, event: WatchMessage, now: float) -> bool:
        """Return whether to print the event; if not, count it."""
        if event.oom or not (event.event in ("began", "ended") or event.too_late):
            return True
        # The line that counts the other events is a line, too.
        needed = 2 if self.has_counted else 1
        if self._refilled(now) >= needed:
            self._left -= needed
            return True
        self.began += event.event == "began"
        self.ended += event.event == "ended"
        self.too_late += event.too_late
        return False

    @property
    def has_counted(self) -> bool:
        """Whether events were only counted since the last count was printed."""
        return bool(self.began or self.ended or self.too_late)

    def is_count_due(self, now: float) -> bool:
        """Return whether to print the counts now; if so, count the line."""
        if not self.has_counted or self._refilled(now) < 1:
            return False
        self._left -= 1
        return True

    def _refilled(self, now: float) -> float:
        """Return how many lines may be printed now."""
        self._left = min(LINES, self._left + (now - self._last) / LINE_SECONDS)
        self._last = now
        return self._left


def _named(stack: Callable[[], list[StackFrame]]) -> list[StackFrame]:
    """Return the frames of a stack. If they cannot be read, return [], so that the event is still reported."""
    with contextlib.suppress(Exception):
        return stack()
    return []


def _heap_document(heap: Heap) -> tuple[str, MainHolders]:
    from gdbheap.first_page.ledger import ledger_and_holders
    from gdbheap.first_page.main_holders import BUDGET
    from gdbheap.report.words.verdict import plain_verdict

    answer, held = ledger_and_holders(heap, budget=BUDGET)
    answer = dataclasses.replace(answer, verdict=plain_verdict(answer))
    info = TargetInfo.of([heap])
    return text_of(document("heap", info.targets, info.warnings, info.damage, answer)), held


def _group(options: Options) -> GroupMemory | None:
    """Return the control group that is watched as a whole; None without --cgroup. Raises UsageError if the kernel does
    not count the group's memory."""
    if options.cgroup is None:
        return None
    from gdbheap.targets.chosen_processes import folders
    from gdbheap.watching.memory_readings import group_at

    found = group_at(folders(options.cgroup), is_exact=options.rss is not None or options.grows is not None)
    if found is None:
        raise UsageError(
            f"{one_line(options.cgroup)} has no memory controller, so the kernel does not count its memory"
        )
    return found


def _heap_reader(options: Options, leaving: EndingChildren) -> HeapReader:
    from gdbheap.watching.heap_figures import HeapReader

    every = DEFAULT_PAUSE if options.look_every is None else options.look_every
    return HeapReader(every if options.prometheus and every else None, options.max_stop or None, leaving)


def _server(options: Options, now: Callable[[], Now]) -> Server | None:
    """Start the server that --prometheus asks for, and return it. Return None without this option. Raises the errors of
    ``Server``.
    """
    if options.prometheus is None:
        return None
    from gdbheap.watching.prometheus import Server

    return Server(options.prometheus, now, options.prometheus_host)


def _answer(programs: Programs, options: Options) -> WatchMessage:
    _check(programs, options)
    for pid in programs.pids:
        _check_process(programs.folder(pid))
    return _Watch(programs, options).run()


def _check(programs: Programs, options: Options) -> None:
    """Raise UsageError if there is nothing to watch, nothing to wait for, or nothing to do, or if options exclude each
    other."""
    if not programs.are_named:
        raise UsageError("gdbheap watch: which process? Give a process id, --name=REGEX or --cgroup=PATH")
    if options.cgroup is not None and (programs.pids or options.name is not None):
        raise UsageError("gdbheap watch: --cgroup watches a group as a whole: leave out other processes")
    if not options.acts and options.prometheus is None:
        raise UsageError(
            "gdbheap watch: what should it wait for? Give --rss=SIZE, --grows=SIZE/TIME, --at-oom or --on-memory-error"
        )
    if options.on_memory_error:
        from gdbheap.targets.following import refuse_where_unpatched

        refuse_where_unpatched(THIS_MACHINE, "'gdbheap watch --rss=SIZE' acts before memory runs out")
    if options.on_memory_error and options.prometheus is not None and options.look_every != 0:
        raise UsageError(
            "gdbheap watch: heaps cannot be read for --prometheus while --on-memory-error waits: add --look-every=0, "
            "so that --prometheus serves only RSS"
        )
    if options.prometheus_host and options.prometheus is None:
        raise UsageError("gdbheap watch: --prometheus-host needs --prometheus")
    if options.prometheus_sum and options.prometheus is None:
        raise UsageError("gdbheap watch: --prometheus-sum needs --prometheus")
    if options.look_every is not None and options.prometheus is None:
        raise UsageError("gdbheap watch: --look-every needs --prometheus")
    if options.on_memory_error and options.core:
        raise UsageError("gdbheap watch: gdb cannot write a core for --on-memory-error: leave out --core")
    if options.no_text and options.core:
        raise UsageError("gdbheap watch: a core contains all texts, which --no-text hides: leave out --core")
    if options.acts and options.no_snapshot and not (options.heap or options.core or options.run):
        raise UsageError("gdbheap watch: what should it do? With --no-snapshot, add --heap, --core or --run")


def _check_process(folder: ProcessFolder) -> None:
    """Check that gdbheap can attach to a process and read its memory. Raises NoTarget if the process does not exist,
    and NotPermitted if gdbheap may not read it. Obstacles that do not prevent a watch are only named: another tracer,
    and a first thread that has ended."""
    from gdbheap.refusals import refusal
    from gdbheap.refusals.attaching import check_attaching
    from gdbheap.targets.stopping import patiently, when_untraced

    try:
        when_untraced(folder, lambda: refusal.check(folder))
    except GdbheapError as error:
        if isinstance(error, NoTarget) and folder.living() is not None:
            tell(f"the first thread of process {folder} has ended, so its memory cannot be read", anyway=True)
        elif isinstance(error, NotPermitted) and refusal.other_tracer(folder):
            refusal.check(folder, may_be_traced=True)
            tell(f"another program traces process {folder}: while it does, the watch cannot read it", anyway=True)
        else:
            raise
        return
    try:
        folder.check_memory()
        patiently(folder, lambda: check_attaching(folder))
    except OSError as error:
        raise refusal.explain(folder, error) from None


def _render(shown: Shown[WatchMessage, Options]) -> str:
    return event_text(shown.answer, shown.style)


COMMAND = Command(
    noun="watch",
    summary="Wait for a memory limit, then save a snapshot",
    text="",
    example="gdbheap watch --rss=2G --output=/var/tmp",
    headings={
        "Processes": ("--children", "--name", "--cgroup", "--user"),
        "When to act": ("--rss", "--grows", "--at-oom", "--mark", "--within", "--on-memory-error", "--seccomp"),
        "What to do": (
            "--no-snapshot",
            "--blocks",
            "--heap",
            "--core",
            "--output",
            "--keep",
            "--mode",
            "--run",
            "--run-limit",
        ),
        "How long": ("--count", "--again", "--duration"),
        "Metrics": ("--prometheus", "--prometheus-host", "--prometheus-sum", "--look-every"),
    },
    details="""watch waits until the RSS of a process exceeds `--rss`, or grows by `--grows`. `--at-oom` waits until the
    process's control group or the machine has almost no memory left. `--on-memory-error` waits until Python raises
    MemoryError in the process. watch then takes a snapshot, without contents, and takes the other steps that options
    request. `--name` also waits for processes that start later. `--cgroup` watches a control group as a whole and acts
    on its largest process. `--rss` and `--grows` then count all processes of the group together. Waiting costs next to
    nothing: the kernel wakes watch if it can. If the kernel cannot, watch reads a few numbers about once a second. Near
    a limit, watch reads these numbers up to fifty times a second.

    watch prints each event as a line with its time on standard error. If a step fails, watch continues. watch ends when
    it has acted `--count` times, when all processes have ended, after `--duration`, or at Ctrl-C or SIGTERM. The exit
    status is then 0, or 1 if something failed. The status is 4 if a process did not exist at the start.
    docs/watching.md has examples for systemd and Kubernetes.

    `--at-oom` acts when memory use reaches the percentage `--mark` of the limit. From three quarters,
    it also acts if memory would be full within `--within` at this rate.

    `--on-memory-error` replaces some of Python's instructions while it waits (docs/safety.md). The watch acts when a
    request of Python for memory fails, before MemoryError is raised. The thread with the failed request is stopped
    while watch acts, and Python's other threads wait for it.

    Files in `--output` are named after the program, the process id and the time. If root gives no folder, watch prints
    which folder it uses. After each action, `--keep` removes the files of the oldest actions in that folder. `--heap`
    saves the answer of `heap --json` for the moment of the snapshot. `--core` needs free space on the disk. The process
    is stopped while gdb writes the core, for at most `--max-stop`. If that time is too short, no core is written.

    `--run` takes a program and its arguments, and runs them without a shell; `--run='sh -c …'` starts a shell. The
    environment of COMMAND contains GDBHEAP_PID, GDBHEAP_SNAPSHOT and others. If `--name`
    chooses processes, `--count` counts the actions for each user separately. `--user` keeps only the processes of one
    user. Without `--user`, `--name` also matches other users' programs with the same name.

    `--prometheus` serves these figures of each process: RSS, bytes in use, free, kept and trimmable, and findings.
    watch then needs no other condition, and continues after `--count` actions. `--prometheus` needs prometheus_client:
    `pip install 'gdbheap[prometheus]'`. A request stops no process: all figures but RSS are from the last reading.
    `--look-every` sets the time between two readings. A reading stops a process while its memory is copied; in total, a
    process is stopped for at most 1 % of the time. Without HOST, only this machine can send requests. If HOST is
    0.0.0.0 or an address, every machine that reaches this address can send requests. A request may name these addresses
    or localhost as its host; `--prometheus-host` adds host names, separated by commas. `--prometheus-sum` sums the
    figures of all processes with the same program, systemd unit, container and pod. docs/watching.md lists the metrics.

    `--json` prints each event as a JSON document when it happens. Each document is one line on standard output.""",
    needs=PROCESSES,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
