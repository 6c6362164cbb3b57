"""Follow a process, or a program that gdbheap starts, and sum the calls that make its memory grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import NamedTuple

from gdbheap.answers.distribution import SizeSums
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError
from gdbheap.following.growth import (
    GROWS,
    IDS,
    Cost,
    ExpectedMappings,
    Growth,
    GrowthStack,
    MemoryCall,
    Operation,
    OtherStacks,
    ReservedMemory,
    Unseen,
    counted,
    unseen,
)
from gdbheap.host.procfs import Named, kib, parse_status
from gdbheap.stack_frames import StackFrame
from gdbheap.stacks import CapturedStack, Stacks
from gdbheap.targets.following import Live
from gdbheap.targets.hits import CaughtProcess, Hit
from gdbheap.targets.mappings import Mappings, parse_maps

__all__ = ["FollowRequest", "follow"]

# The most stacks that are kept: a program may have a new stack at each call. Naming a stack takes some milliseconds.
MAX_STACKS = 10_000
# The most bytes of the frames of all these stacks: a stack may have tens of thousands of frames. FRAME_BYTES: the size
# of a frame that shares its place with no other frame.
FRAME_BYTES, FRAMES_BYTES = 150, 60_000_000
MAX_FRAMES = FRAMES_BYTES // FRAME_BYTES
# For how many seconds stacks are still read after following has ended; the calls that were caught before may be many.
REST_SECONDS = 1.0
# The most readers of stacks at a time: each has open descriptors and some 100 KB, and a program may start many
# processes.
MAX_READERS = 64
# If reading a stack took more than SLOW_SECONDS of CPU time, as in a process with tens of thousands of mappings, no
# stack of this process is read for a while, because the other processes wait meanwhile. Reading its stacks then takes
# the share STACK_SHARE of the time.
SLOW_SECONDS, STACK_SHARE = 0.05, 0.05


@dataclass(frozen=True)
class FollowRequest:
    """The request to follow a process: what to record, and for how long.

    ``duration``: the seconds after which following ends, None for no limit.
    ``count``: the number of calls that make memory grow after which following ends, None for no limit.
    ``is_told``: a function; following also ends once it returns True.
    ``stacks``: capture the stacks of these calls.
    ``seccomp``: follow a process even if it has a seccomp filter.
    ``tracepoints``: use tracepoints of the kernel, which do not stop threads.
    """

    duration: float | None = None
    count: int | None = None
    stacks: bool = True
    seccomp: bool = False
    tracepoints: bool = False
    is_told: Callable[[], bool] = lambda: False


def follow(live: Live, course: FollowRequest, begun: Callable[[int], None]) -> Growth:
    """Follow a process and return the calls that made its memory grow.

    ``begun`` is called once following has started, with the number of watched code addresses. Raises GdbheapError. An
    interrupt ends following, and the sums so far are returned.
    """
    before = _resident(live)
    with _seen(live, course) as following:
        begun_with = _resident(live)
        sums = _Sums(live, course.stacks, following, course.tracepoints)
        begun(len(following.what))
        is_told = course.is_told
        # A second interrupt, while the patches are being removed, is raised in the caller.
        try:
            _run(following, course, sums)
        except KeyboardInterrupt:
            is_told = _always
        seconds = time.monotonic() - sums.began
        following.end(is_told)
        sums.add_rest(following)
        after = _resident(live)
    found = sums.growth(following, seconds, course.tracepoints)
    if before is None or begun_with is None or after is None:
        return found
    return replace(
        found,
        rss_before=begun_with.anonymous,
        rss_after=after.anonymous,
        file_pages=max(0, begun_with.file - before.file),
    )


class _Resident(NamedTuple):
    """The resident bytes of a process: the anonymous bytes, and the bytes in pages of files."""

    anonymous: int
    file: int


def _resident(live: Live) -> _Resident | None:
    """Return the resident memory of a process; None if it is unknown, or if gdbheap starts the program."""
    if live.folder is None:
        return None
    try:
        fields = parse_status(live.folder.read("status"))
    except OSError:
        return None
    anonymous, file = kib(fields.get("RssAnon")), kib(fields.get("RssFile"))
    return None if anonymous is None or file is None else _Resident(anonymous, file)


def _always() -> bool:
    return True


def _seen(live: Live, course: FollowRequest) -> AbstractContextManager[CaughtProcess]:
    numbers = list(live.machine.system_calls.of_memory)
    if course.tracepoints:
        return live.tracepoints(numbers, course.stacks)
    return live.calls(numbers, course.stacks, course.seccomp)


def _run(following: CaughtProcess, course: FollowRequest, sums: _Sums) -> None:
    def is_over() -> bool:
        return course.is_told() or (course.count is not None and sums.grown >= course.count)

    for hit in following.seen(course.duration, is_over):
        sums.add(hit, following.place(hit))


@dataclass
class _Process:
    """A followed process: its memory, the mappings that should exist after its calls, and the reader of its stacks.

    ``stacks`` is None until it is needed. ``is_refused``: whether the reader of stacks cannot be made. ``rests_until``:
    when its next stack may be read (``time.monotonic``).
    """

    memory: ReservedMemory
    expected: ExpectedMappings
    stacks: Stacks | None = None
    is_refused: bool = False
    rests_until: float = 0.0


class _Sums:
    """Sums the bytes and the numbers of caught calls as they arrive: by operation, by size and by stack."""

    def __init__(self, live: Live, with_stacks: bool, following: CaughtProcess, tracepoints: bool) -> None:
        self._live, self._machine, self._with_stacks = live, live.machine, with_stacks
        # The mappings at the beginning; empty if gdbheap started the program.
        self._before = parse_maps(following.follower.maps[0])
        self.began = time.monotonic()
        self.grown = 0
        self._processes: dict[int, _Process] = {}
        self._sizes = {"brk": SizeSums(), "mmap": SizeSums()}
        self._counts: dict[str, list[int]] = {}
        self._stacks: dict[tuple[Stacks, CapturedStack], list[int]] = {}
        self._names: dict[tuple[StackFrame, ...], list[int]] = {}
        self._unread: dict[str, None] = {}
        self._others = [0, 0]
        # The number of frames in _stacks and _names.
        self._frames = 0
        self._readers = 0
        if tracepoints and live.pid is not None:
            # Open the reader now: the process may have ended before its first call is reported.
            stacks = self._reader(live.pid, self._process(live.pid))
            if stacks is not None:
                stacks.keep_files()

    def add(self, hit: Hit, what: int | str | None, reads_stack: bool = True) -> None:
        """Add a caught call. ``what``: the number of its system call; another value means that the process now runs
        another program. A call whose stack is not read is added to ``OtherStacks``.
        """
        if not isinstance(what, int):
            # The process now runs another program, so the known facts about its memory no longer hold.
            self._processes.pop(hit.pid, None)
            return
        process = self._process(hit.pid)
        call = process.memory.read(what, hit.registers)
        self._count(call)
        process.expected.add(call, hit.doubtful)
        if call.id in GROWS:
            self._note_stack(process, hit, call, reads_stack)

    def add_rest(self, following: CaughtProcess) -> None:
        """Add the calls that threads made while the process was being released. Stacks are read only for the first
        REST_SECONDS."""
        end = time.monotonic() + REST_SECONDS
        while (hit := following.follower.next(0)) is not None:
            self.add(hit, following.place(hit), time.monotonic() < end)

    def _process(self, pid: int) -> _Process:
        if pid not in self._processes:
            before = self._before if pid == self._live.pid else Mappings()
            expected = ExpectedMappings(before.ranges())
            self._processes[pid] = _Process(ReservedMemory(self._machine, before), expected)
        return self._processes[pid]

    def _reader(self, pid: int, process: _Process) -> Stacks | None:
        """Return the reader of a process's stacks, and make it on first use; None if it cannot be made."""
        if process.stacks is None and not process.is_refused:
            if self._readers >= MAX_READERS:
                self._close_readers()
            process.stacks = self._stacks_of(pid)
            process.is_refused = process.stacks is None
            self._readers += process.stacks is not None
        return process.stacks

    def _close_readers(self) -> None:
        """Name the stacks captured so far and drop all readers. Forget processes that have ended or whose reader cannot
        be made."""
        self._name_all()
        self._readers = 0
        for pid, process in list(self._processes.items()):
            if process.is_refused or (process.stacks is not None and process.stacks.has_ended):
                del self._processes[pid]
            process.stacks = None

    def _stacks_of(self, pid: int) -> Stacks | None:
        if self._with_stacks:
            with suppress(GdbheapError, OSError):
                return Stacks(self._held(pid), self._machine)
        return None

    def _held(self, pid: int) -> Named:
        """Return the folder of the followed process, or the id of any other process.

        gdbheap traces all other processes, so their ids cannot be reused meanwhile."""
        held = self._live.folder if pid == self._live.pid else None
        return pid if held is None else held

    def _count(self, call: MemoryCall) -> None:
        sums = self._counts.setdefault(call.id, [0, 0])
        sums[0] += 1
        sums[1] += call.bytes
        if call.id in GROWS:
            self.grown += 1
            self._sizes["brk" if call.id == "brk" else "mmap"].add(call.bytes)

    def _note_stack(self, process: _Process, hit: Hit, call: MemoryCall, reads_stack: bool) -> None:
        stacks = self._reader(hit.pid, process)
        if stacks is None:
            return
        sums = self._others
        if reads_stack and time.monotonic() >= process.rests_until:
            began = time.thread_time()
            key = stacks, stacks.capture_registers(hit.registers, hit.stack)
            took = time.thread_time() - began
            if took > SLOW_SECONDS:
                process.rests_until = time.monotonic() + took / STACK_SHARE
            sums = self._kept(key)
        sums[0] += call.bytes
        sums[1] += 1

    def _kept(self, key: tuple[Stacks, CapturedStack]) -> list[int]:
        """Return the sums of a stack: its own, or those of all other stacks (``OtherStacks``) if the limits allow no
        new one."""
        found = self._stacks.get(key)
        if found is None:
            frames = self._frames + key[1].frames
            if len(self._stacks) + len(self._names) >= MAX_STACKS or frames > MAX_FRAMES:
                return self._others
            self._frames = frames
            found = self._stacks[key] = [0, 0]
        return found

    def growth(self, following: CaughtProcess, seconds: float, tracepoints: bool) -> Growth:
        """Return the answer: calls and bytes by operation and by stack, the cost of following, and why it ended."""
        follower = following.follower
        return Growth(
            self._live.pid,
            seconds,
            counted(self._sizes["brk"]),
            counted(self._sizes["mmap"]),
            [Operation(id, *self._counts[id]) for id in IDS if id in self._counts],
            self._named(),
            self._unseen(following),
            Cost(follower.hits, follower.stood, follower.held),
            follower.finish or "asked",
            len(following.what),
            len(following.refused),
            follower.status,
            follower.lost if tracepoints else None,
            OtherStacks(*self._others) if self._others[1] else None,
            any(process.expected.is_cut or process.memory.is_cut for process in self._processes.values()),
        )

    def _named(self) -> list[GrowthStack]:
        self._name_all()
        self._live.unread += self._unread
        named = [GrowthStack(size, calls, list(frames)) for frames, (size, calls) in self._names.items()]
        return sorted(named, key=lambda stack: (-stack.bytes, -stack.calls))

    def _name_all(self) -> None:
        """Name the stacks captured so far, and merge those with equal names."""
        for (stacks, captured), (size, calls) in self._stacks.items():
            found = self._names.setdefault(stacks.name(captured), [0, 0])
            found[0] += size
            found[1] += calls
        self._unread.update(dict.fromkeys(line for stacks, _ in self._stacks for line in stacks.unread))
        self._stacks.clear()
        self._frames = sum(map(len, self._names))

    def _unseen(self, following: CaughtProcess) -> Unseen | None:
        after = parse_maps(following.follower.maps[1])
        process = self._processes.get(self._live.pid or 0)
        if not len(self._before) or not len(after) or process is not None and process.expected.is_cut:
            return None
        return unseen(process.expected if process else ExpectedMappings(self._before.ranges()), after)
