"""Replay a program's calls under its own allocator or another one, and measure the memory that they take."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field, replace
from typing import Optional

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.errors import EXHAUSTED, GdbheapError, UsageError, exhausted, one_line
from gdbheap.host.headroom import disk_left, memory_left, room_for_copy
from gdbheap.tracing.log import CallLog, Frames, ProcessCalls, read_log
from gdbheap.tracing.replay_settings import Setting
from gdbheap.tracing.replayer import Replayer, ReplayerEnded, ReplayMoment

__all__ = ["Filmed", "Gaps", "Job", "Replayed", "Run", "planned", "run"]

LEAST_GAP = 1 << 20

AtStop = Callable[[int, int], bool]
Progress = Optional[Callable[[int, int], None]]


@dataclass(frozen=True)
class Gaps:
    """The holes in glibc's heap after a number of calls: free memory that glibc cannot return. Sizes are in bytes."""

    calls: int
    system: int | None
    in_use: int | None
    hole_count: int
    hole_bytes: int


@dataclass(frozen=True)
class Run:
    """The figures of replaying the calls under one setting.

    ``system`` and ``in_use``: at the end, as malloc_stats() counts them; None for allocators other than glibc. If the
    calls were replayed several times, these are the figures of the replay with the median peak."""

    allocator: str
    preloaded: str | None
    tunables: str
    peak_rss: int | None = None
    final_rss: int | None = None
    system: int | None = None
    in_use: int | None = None
    usable: int | None = None
    seconds: float | None = None
    ns_a_call: float | None = None
    failed: int = 0
    rounds: int = 1
    least_peak_rss: int | None = None
    most_peak_rss: int | None = None
    at_peak: Gaps | None = None
    at_end: Gaps | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Filmed:
    """A film of the heap: pictures of its map, each after the same number of calls.

    ``folder``: the folder with the pictures.
    ``every``: the number of calls from one picture to the next.
    ``cell``: how many bytes a cell of a picture stands for.
    """

    folder: str
    pictures: int
    every: int
    cell: int


@dataclass(frozen=True)
class Replayed:
    """The answer of ``gdbheap replay``: the figures of the recorded calls, and a ``Run`` for each setting."""

    file: str
    pid: int
    exe: str
    words: list[str]
    processes: int
    calls: int
    threads: int
    peak_call: int
    peak_bytes: int
    live_blocks: int
    live_bytes: int
    unknown: int
    failed: int
    lost: int
    repeated_mappings: int
    order: str
    filled: bool
    fixed: bool
    is_whole: bool
    rows: list[Run] = field(default_factory=list)
    best: int | None = None
    stopped: int | None = None
    inherited: int = 0
    film: Filmed | None = None
    ok: bool = True


@dataclass(frozen=True)
class Job:
    """The calls of a process, ready to be replayed.

    ``plan``: the descriptor of the plan, a file that native/core/src/events/plan.rs writes; ``content``: the figures of
    the plan."""

    log: CallLog
    process: ProcessCalls
    plan: int
    content: _native.ReplayPlan
    fill: bool

    def answer(self, runs: Sequence[Run], fixed: bool, best: int | None = None, stopped: int | None = None) -> Replayed:
        """Return the answer of ``gdbheap replay`` for one process: the figures of its calls, and ``runs``.

        ``fixed``: whether addresses were the same in each run. ``best``: the index of the run that used least memory,
        None if none used significantly less than the first. ``stopped``: the number of the call after which the replay
        was ended early, None if it ran to its end."""
        who, content = self.process.who, self.content
        whole = content.whole and self.process.ended
        return Replayed(
            self.log.path, who.pid, who.exe, who.words, len(self.log.processes), content.calls, content.threads,
            content.peak_call, content.peak_bytes, content.live_blocks, content.live_bytes, content.unknown,
            content.failed, self.process.lost, content.mappings, who.order, self.fill, fixed, whole, list(runs),
            best, stopped, content.inherited, ok=whole and any(run.failure is None for run in runs),
        )  # fmt: skip


@contextmanager
def planned(
    path: str, pid: int | None, fill: bool, mappings: bool, shown: AbstractContextManager[Progress] | None = None
) -> Iterator[Job]:
    """Plan the replay of a log's process. Yield a job that is valid inside the ``with`` block.

    ``shown``: a context manager that gives the function to call with the progress of planning. Raises UsageError if the
    file is not a log or has no such process. Raises GdbheapError if TMPDIR has too little disk space for the plan,
    which takes 8 bytes for each call."""
    log = read_log(path)
    process = log.chosen(pid)
    with tempfile.TemporaryFile(prefix="gdbheap-plan-") as file:
        try:
            plan, room, most = f"/proc/self/fd/{file.fileno()}", room_for_copy(), disk_left(file.fileno())
            parents = _parents(log, process)
            with shown or nullcontext() as progress:
                content = _native.plan_calls(
                    process.opened, process.frames, room, plan, most, mappings, parents, progress
                )
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise exhausted(error) from None
            raise GdbheapError(f"the plan of a replay cannot be written: {one_line(error.strerror or error)}") from None
        if not content.calls:
            raise UsageError(f"{one_line(path)}: it contains no calls of process {process.who.pid}")
        _prove_room(content, fill)
        yield Job(log, process, file.fileno(), content, fill)


def _prove_room(content: _native.ReplayPlan, fill: bool) -> None:
    """Raise GdbheapError if a replay that touches all blocks (``fill``) needs more memory than is left."""
    need, left = content.peak_bytes, memory_left("self")
    if fill and need > left:
        raise GdbheapError(
            f"the calls need {need >> 20:,} MiB at their peak, and {left >> 20:,} MiB of memory are left: replay them"
            " without --fill, which touches each page"
        )


def _parents(log: CallLog, process: ProcessCalls) -> list[tuple[Frames, int]]:
    """Return the stages of the process's ancestors, eldest first: each with the number of the fork that led to the
    process."""
    known = {(one.who.pid, one.who.began): one for one in log.processes}
    found: list[tuple[Frames, int]] = []
    # A damaged log may say that a process is its own ancestor.
    seen = {(process.who.pid, process.who.began)}
    while process.who.parent is not None:
        pid, began, number = process.who.parent
        parent = known.get((pid, began))
        if parent is None or not number or (pid, began) in seen:
            break
        seen.add((pid, began))
        found.append((parent.frames, number))
        process = parent
    return found[::-1]


def run(
    job: Job, setting: Setting, with_gaps: bool = False, stops: Sequence[int] = (), at_stop: AtStop | None = None
) -> tuple[Run, ReplayMoment | None]:
    """Replay the calls once. Return the figures, and the replayer's state after the last call.

    ``with_gaps``: find glibc's holes at the peak and at the end. ``at_stop`` is called after each of the calls
    ``stops`` and after the last call, with the replayer's pid and the number of calls done; it returns whether to
    continue. If the replayer ended early, the run has the reason as its ``failure``, and the state is None. Raises
    UsageError if the library is not an allocator."""
    looks = {job.content.peak_call} if with_gaps and setting.library is None else set()
    wanted = frozenset(stops)
    found: dict[int, Gaps | None] = {}
    last = None
    begun = Run(setting.allocator, setting.library, setting.tuned)
    try:
        with Replayer(job.plan, setting, job.fill, sorted(looks | wanted)) as replayer:
            for moment in replayer.moments():
                _check_library(setting, moment)
                last = moment
                if with_gaps and (moment.calls in looks or moment.is_end) and moment.system is not None:
                    found[moment.calls] = _gaps_of(replayer.pid, moment)
                is_wanted = at_stop is not None and (moment.calls in wanted or moment.is_end)
                if is_wanted and at_stop is not None and not at_stop(replayer.pid, moment.calls):
                    break
    except ReplayerEnded as ended:
        return replace(begun, failure=str(ended)), None
    assert last is not None
    return _run_of(begun, last, found.get(job.content.peak_call), found.get(last.calls)), last


def _run_of(begun: Run, last: ReplayMoment, peak: Gaps | None, end: Gaps | None) -> Run:
    return replace(
        begun,
        peak_rss=last.peak_rss,
        final_rss=last.rss,
        system=last.system,
        in_use=last.in_use,
        usable=last.usable,
        seconds=round(last.nanoseconds / 1e9, 6),
        ns_a_call=round(last.nanoseconds / max(last.calls, 1), 1),
        failed=last.failures,
        least_peak_rss=last.peak_rss,
        most_peak_rss=last.peak_rss,
        at_peak=peak,
        at_end=end if last.is_end else None,
    )


def _check_library(setting: Setting, moment: ReplayMoment) -> None:
    """Raise UsageError if the allocator's library was not loaded. The dynamic linker runs the program even without a
    library that it cannot load."""
    if setting.library is not None and os.path.realpath(moment.file) != os.path.realpath(setting.library):
        raise UsageError(f"{one_line(setting.library)} is not a library with a malloc, or cannot be preloaded here")


def _gaps_of(pid: int, moment: ReplayMoment) -> Gaps | None:
    """Return the holes in the heap of a stopped replayer process; None if the heap cannot be read."""
    # This import is here because it imports nearly all of gdbheap.
    from gdbheap.answers.holes import holes
    from gdbheap.heap import Heap
    from gdbheap.targets.process import stopped

    try:
        with stopped(pid) as process:
            found = holes(Heap(process), LEAST_GAP, 0)
    except GdbheapError:
        return None
    return Gaps(moment.calls, moment.system, moment.in_use, found.count, found.bytes)
