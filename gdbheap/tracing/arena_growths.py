"""Find the calls in a replay that made glibc's arenas grow, and the size of the largest hole before each call."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, UsageError
from gdbheap.host.headroom import room_for_copy
from gdbheap.stack_frames import StackFrame
from gdbheap.tracing.call_stacks import Namer
from gdbheap.tracing.replay import Job, Progress, planned
from gdbheap.tracing.replay_settings import Setting, recorded_setting
from gdbheap.tracing.replayer import GrowthCall, Replayer

__all__ = ["ArenaGrowth", "growths"]

HUGE_TUNABLE = "glibc.malloc.hugetlb"


@dataclass(frozen=True)
class ArenaGrowth:
    """A call that made an arena of glibc grow. Sizes are in bytes.

    ``asked``: the request.
    ``chunk``: the chunk that the request needs.
    ``bytes``: the growth of the arena.
    ``arena``: the arena's number, 0 for the main one.
    ``has_looked``: whether the arena's free chunks were read.
    ``largest``: the arena's largest free chunk before the call, None if there was none or it is unknown.
    ``short_by``: the bytes by which that chunk was too small, None if there is no such chunk.
    ``is_new``: whether the call created the arena.
    """

    call: int
    asked: int
    alignment: int
    bytes: int
    chunk: int
    arena: int
    largest: int | None
    short_by: int | None
    has_looked: bool
    is_new: bool
    frames: list[StackFrame] | None


def growths(path: str, pid: int | None, count: int | None, progress: Progress = None) -> list[ArenaGrowth]:
    """Return all arena growths of a log's process, in order of the calls.

    The free chunks are read only for the ``count`` largest growths (None: for all). Raises UsageError if the file is
    not a log, or if the program used huge pages or another malloc than glibc's. Raises GdbheapError if the calls cannot
    be replayed."""
    with planned(path, pid, False, False) as job:
        setting = recorded_setting(job.process.who)
        if setting.library is not None or HUGE_TUNABLE in setting.tunables:
            raise UsageError(
                "arena growths need glibc's malloc without huge pages, but the recorded program used huge pages or "
                "another malloc"
            )
        found = _all(job, setting)
        chosen = sorted(found, key=lambda grown: -grown.bytes)[:count]
        calls = sorted(grown.call for grown in chosen)
        looked, stacks = _looked_at(job, setting, calls, progress), _stacks(job, calls)
    numbers: dict[int, int] = {0: 0}
    rows = []
    for grown in found:
        new = grown.arena not in numbers
        number = numbers.setdefault(grown.arena, len(numbers))
        largest = None if new else looked.get(grown.call)
        rows.append(_growth(grown, number, grown.call in looked, largest, new, stacks.get(grown.call)))
    return rows


def _all(job: Job, setting: Setting) -> list[GrowthCall]:
    with Replayer(job.plan, setting, False, (), with_growths=True) as replayer:
        for _moment in replayer.moments():
            pass
        return replayer.growths


def _looked_at(job: Job, setting: Setting, calls: Sequence[int], progress: Progress) -> dict[int, int | None]:
    """Return the largest free chunk that the arena had before each of ``calls``, by call; None if it had no free chunk.

    Each of these calls made an arena grow. Calls at which the heap could not be read are not in the result.
    """
    found: dict[int, int | None] = {}
    with Replayer(job.plan, setting, False, [call - 1 for call in calls], with_growths=True) as replayer:
        largest: dict[int, int] | None = None
        seen = 0
        for moment in replayer.moments():
            if largest is not None:
                found.update((grown.call, largest.get(grown.arena)) for grown in replayer.growths[seen : seen + 1])
            if progress is not None:
                progress(len(found), len(calls))
            largest, seen = (None if moment.is_end else _largest(replayer.pid)), len(replayer.growths)
    return found


def _stacks(job: Job, calls: list[int]) -> dict[int, list[StackFrame]]:
    """Return the stacks of these calls, by call, outermost frame first. Calls without a recorded stack are missing."""
    process, before = job.process, job.content.inherited
    if not process.who.stacks:
        return {}
    # A replay begins with the calls of the process's ancestors. Their stages, and so their stacks, are not in
    # ``process.frames``.
    asked = [call - before for call in calls if call > before]
    found = _native.live_stacks(process.opened, process.frames, room_for_copy(), process.who.stacks, [], asked=asked)
    namer = Namer(found, process.who)
    return {caller.call + before: list(namer.frames(caller.stack)) for caller in found.callers}


def _need(grown: GrowthCall) -> int:
    """Return the size of the free chunk that malloc looks for.

    For an aligned request this chunk is larger, because malloc cuts off the parts before and after the aligned part
    (malloc/malloc.c, _int_memalign).
    """
    from gdbheap.allocators.glibc.arenas import SMALLEST_CHUNK
    from gdbheap.answers.fit import chunk_of

    chunk = chunk_of(grown.size)
    return chunk_of(chunk + grown.alignment + SMALLEST_CHUNK) if grown.alignment else chunk


def _growth(
    grown: GrowthCall, arena: int, looked: bool, largest: int | None, new: bool, frames: list[StackFrame] | None
) -> ArenaGrowth:
    need = _need(grown)
    short_by = None if largest is None else need - largest
    return ArenaGrowth(
        grown.call, grown.size, grown.alignment, grown.bytes, need, arena, largest, short_by, looked, new, frames
    )


def _largest(pid: int) -> dict[int, int] | None:
    """Return the largest free chunk of each arena, by the arena's address (0 for the main one); None if the heap cannot
    be read. Arenas without a free chunk are missing."""
    # This import is here because it imports nearly all of gdbheap.
    from gdbheap.allocators.glibc.allocator import GlibcAllocator
    from gdbheap.answers.fit import largest_free
    from gdbheap.heap import Heap
    from gdbheap.targets.process import stopped

    try:
        with stopped(pid) as process:
            heap = Heap(process)
            largest = largest_free(heap)
            arenas = heap.allocator(GlibcAllocator).malloc.arenas
    except GdbheapError:
        return None
    return {arena.address if index else 0: largest[index] for index, arena in enumerate(arenas) if index in largest}
