"""Statistics of recorded calls: blocks in use over time, sizes, lifetimes (native/core/src/events/stats)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import ClassVar

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.host.headroom import room_for_copy
from gdbheap.tracing.arena_growths import ArenaGrowth
from gdbheap.tracing.log import read_log

__all__ = [
    "LIFETIME_ERROR",
    "CallCounts",
    "CallStats",
    "Cumulated",
    "Curves",
    "InUse",
    "Lifetimes",
    "LifetimesOf",
    "Moment",
    "Point",
    "Requested",
    "Resized",
    "SizeOfCalls",
    "Span",
    "Temporary",
    "call_stats",
]

LIFETIME_ERROR = 1 / 128
"""The largest relative error of quantiles of lifetimes, which are rounded up. Quantiles below 256 are exact."""
NANOSECONDS = 10**9


@dataclass(frozen=True)
class CallCounts:
    """The number of calls of each kind. ``all``: the sum of malloc, calloc, realloc, memalign and free; these calls are
    numbered from 1."""

    all: int
    malloc: int
    calloc: int
    realloc: int
    memalign: int
    free: int
    mmap: int
    munmap: int
    mremap: int
    mallopt: int
    malloc_trim: int
    fork: int


@dataclass(frozen=True)
class InUse:
    """The blocks in use: their number, the bytes requested for them, and their usable bytes."""

    count: int
    bytes: int
    usable: int


@dataclass(frozen=True)
class Moment:
    """The blocks in use after call number ``call`` (0: before the first call). ``seconds``: the time since the log
    began."""

    count: int
    bytes: int
    usable: int
    call: int
    seconds: float


@dataclass(frozen=True)
class Requested:
    """The calls that returned a block, including calls of realloc: their number, the requested bytes and the usable
    bytes."""

    calls: int
    bytes: int
    usable: int


@dataclass(frozen=True)
class SizeOfCalls:
    """Calls that requested at least ``start`` and less than ``end`` bytes, and the live blocks of these sizes. In JSON
    the two keys are ``from`` and ``to``."""

    keys: ClassVar[dict[str, str]] = {"start": "from", "end": "to"}

    start: int
    end: int
    calls: int
    bytes: int
    live_blocks: int
    live_bytes: int


@dataclass(frozen=True)
class Span:
    """Blocks that lived for at least ``start`` and less than ``end`` calls. In JSON the two keys are ``from_calls`` and
    ``to_calls``."""

    keys: ClassVar[dict[str, str]] = {"start": "from_calls", "end": "to_calls"}

    start: int
    end: int
    blocks: int


@dataclass(frozen=True)
class LifetimesOf:
    """The median, the 90 % quantile and the maximum of the lifetimes of released blocks, in calls or in seconds. Each
    is None if no block was released."""

    median: float | None
    p90: float | None
    longest: float | None


@dataclass(frozen=True)
class Lifetimes:
    """The lifetimes of the released blocks.

    ``in_calls``: how many calls, by any thread, were made between allocation and release.
    ``within_a_call``: how many blocks were released by the very next call.
    ``in_seconds``: lifetimes by the times in the log, which are ``tick`` seconds apart on average.
    """

    released: int
    within_a_call: int
    in_calls: LifetimesOf
    in_seconds: LifetimesOf
    tick: float | None
    by_calls: list[Span]
    inaccuracy: float = LIFETIME_ERROR


@dataclass(frozen=True)
class Cumulated:
    """The total bytes of all requests. For a realloc, ``upper`` counts the whole new size, ``lower`` only the
    growth.
    """

    upper: int
    lower: int


@dataclass(frozen=True)
class Temporary:
    """Blocks that were released in the next call of the thread that allocated them."""

    count: int
    bytes: int


@dataclass(frozen=True)
class Resized:
    """The effect of realloc on recorded blocks: the numbers of enlarged, shrunk and moved blocks, and the
    copied bytes.
    """

    made_larger: int
    shrunk: int
    moved: int
    copied: int


@dataclass(frozen=True)
class Point:
    """A point of a curve, at the end of a range of calls.

    The point has the blocks in use at that moment. ``most``: the most bytes in use at any moment within the range.
    """

    call: int
    seconds: float
    count: int
    bytes: int
    most: int


@dataclass(frozen=True)
class Curves:
    """The blocks in use over calls and over time. Each curve has at most 2,048 points, none if there are no calls."""

    over_calls: list[Point]
    over_seconds: list[Point]


@dataclass(frozen=True)
class CallStats:
    """The answer of ``gdbheap calls FILE`` for one process.

    ``not_released``: blocks whose release is missing in the log, although their address was handed out again."""

    file: str
    pid: int
    exe: str
    words: list[str]
    processes: int
    threads: int
    seconds: float
    calls: CallCounts
    allocated: int
    live: InUse
    peak: Moment
    most_blocks: Moment
    requested: Requested
    cumulated: Cumulated
    temporary: Temporary
    resized: Resized
    lifetimes: Lifetimes
    failed: int
    nothing: int
    unknown: int
    not_released: int
    lost: int
    is_whole: bool
    ok: bool
    curve: Curves
    sizes: list[SizeOfCalls] = field(default_factory=list)
    arena_growths: list[ArenaGrowth] | None = None


def call_stats(path: str, pid: int | None, progress: Callable[[int, int], None] | None = None) -> CallStats:
    """Return the statistics of a process in a log.

    ``pid``: the process; None for the process with the most calls. Raises UsageError if the file is not a log, or has
    no such process.
    """
    log = read_log(path)
    process = log.chosen(pid)
    found = _native.call_stats(process.opened, process.frames, room_for_copy(), progress)
    who, kinds = process.who, found.kinds
    counts = CallCounts(
        found.calls, kinds.malloc, kinds.calloc, kinds.realloc, kinds.memalign, kinds.free, kinds.mmap, kinds.munmap,
        kinds.mremap, kinds.mallopt, kinds.malloc_trim, kinds.fork,
    )  # fmt: skip
    resized, whole = found.resized, found.whole and process.ended
    return CallStats(
        path, who.pid, who.exe, who.words, len(log.processes), found.threads, found.nanoseconds / NANOSECONDS, counts,
        found.blocks, InUse(found.live.blocks, found.live.bytes, found.live.usable), _moment(found.peak),
        _moment(found.most), Requested(sum(row.calls for row in found.sizes), found.upper, found.usable),
        Cumulated(found.upper, found.lower), Temporary(found.temporary, found.temporary_bytes),
        Resized(resized.grown, resized.shrunk, resized.moved, resized.copied), _lifetimes(found), found.failed,
        found.nothing, found.unknown, found.unseen, process.lost, whole, whole,
        Curves(_points(found.by_call), _points(found.by_time)),
        [SizeOfCalls(row.start, row.end, row.calls, row.bytes, row.live, row.live_bytes) for row in found.sizes],
    )  # fmt: skip


def _moment(found: _native.CallMoment) -> Moment:
    in_use = found.in_use
    return Moment(in_use.blocks, in_use.bytes, in_use.usable, found.call, found.nanoseconds / NANOSECONDS)


def _points(points: Sequence[_native.CurvePoint]) -> list[Point]:
    return [
        Point(point.calls, point.nanoseconds / NANOSECONDS, point.blocks, point.bytes, point.most_bytes)
        for point in points
    ]


def _lifetimes(found: _native.CallStats) -> Lifetimes:
    calls, times = found.lives_in_calls, found.lives_in_nanoseconds
    seconds = [None if value is None else value / NANOSECONDS for value in (times.median, times.most_of, times.longest)]
    return Lifetimes(
        found.released,
        calls.zero,
        LifetimesOf(calls.median, calls.most_of, calls.longest),
        LifetimesOf(*seconds),
        found.nanoseconds / NANOSECONDS / (found.ticks - 1) if found.ticks > 1 else None,
        [Span(span.start, span.end, span.blocks) for span in calls.spans],
    )
