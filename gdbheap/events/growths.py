"""Which calls made glibc's arenas larger, and by how much the largest hole was too short for them: from a replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gdbheap.errors import GdbheapError, UsageError
from gdbheap.events.replay import Job, Progress, planned
from gdbheap.events.replayer import Grown, Replayer
from gdbheap.events.settings import Setting, recorded_setting

__all__ = ["Growth", "growths"]

HUGE_TUNABLE = "glibc.malloc.hugetlb"


@dataclass(frozen=True)
class Growth:
    """A call that made an arena larger by ``bytes``. ``size``: what it asked for, ``chunk`` what that takes.
    ``largest``: the largest free chunk that the arena had before the call, ``short_by``: how much it missed; None where
    there was none, where the arena is a new one, or where that was not looked at (``looked``). ``arena``: its index, 0
    for the main one; None where it is a new one or was not looked at."""

    call: int
    size: int
    alignment: int
    bytes: int
    chunk: int
    arena: int | None
    largest: int | None
    short_by: int | None
    looked: bool


def growths(path: str, pid: int | None, count: int | None, progress: Progress = None) -> list[Growth]:
    """All growths of a process of a log, in their order; the ``count`` largest of them (None: all) are looked at.
    Raises UsageError for a log that is none, or of another allocator, and GdbheapError where it cannot be replayed."""
    with planned(path, pid, False, False) as job:
        setting = recorded_setting(job.process.who)
        if setting.library is not None or HUGE_TUNABLE in setting.tunables:
            raise UsageError("growths are those of glibc's arenas, without huge pages: the program had others")
        found = _all(job, setting)
        chosen = sorted(found, key=lambda grown: -grown.bytes)[:count]
        looked = _looked_at(job, setting, sorted(grown.call for grown in chosen), progress)
    return [looked.get(grown.call) or _growth(grown, False) for grown in found]


def _all(job: Job, setting: Setting) -> list[Grown]:
    with Replayer(job.plan, setting, False, (), with_growths=True) as replayer:
        for _moment in replayer.moments():
            pass
        return replayer.growths


def _looked_at(job: Job, setting: Setting, calls: Sequence[int], progress: Progress) -> dict[int, Growth]:
    """By call; each is looked at as it is about to be made."""
    found: dict[int, Growth] = {}
    with Replayer(job.plan, setting, False, [call - 1 for call in calls], with_growths=True) as replayer:
        waiting: Callable[[Grown], Growth] | None = None
        seen = 0
        for moment in replayer.moments():
            if waiting is not None:
                found.update((grown.call, waiting(grown)) for grown in replayer.growths[seen : seen + 1])
            if progress is not None:
                progress(len(found), len(calls))
            waiting, seen = (None if moment.is_end else _look(replayer.pid)), len(replayer.growths)
    return found


def _need(grown: Grown) -> int:
    """The chunk that malloc looks for. With an alignment it is one that has an aligned one in it, with what is cut off
    on both sides (malloc/malloc.c, _int_memalign)."""
    from gdbheap.allocators.glibc.arenas import SMALLEST_CHUNK
    from gdbheap.answers.fit import chunk_of

    chunk = chunk_of(grown.size)
    return chunk_of(chunk + grown.alignment + SMALLEST_CHUNK) if grown.alignment else chunk


def _growth(grown: Grown, looked: bool, arena: int | None = None, largest: int | None = None) -> Growth:
    need = _need(grown)
    short_by = None if largest is None else need - largest
    return Growth(grown.call, grown.size, grown.alignment, grown.bytes, need, arena, largest, short_by, looked)


def _look(pid: int) -> Callable[[Grown], Growth]:
    """What a growth is once its call is known, from the free chunks that there are now."""
    # Imported where it is needed: it is nearly all of gdbheap.
    from gdbheap.allocators.glibc.allocator import GlibcAllocator
    from gdbheap.answers.fit import largest_free
    from gdbheap.heap import Heap
    from gdbheap.target.process import stopped

    try:
        with stopped(pid) as process:
            heap = Heap(process)
            largest = largest_free(heap)
            arenas = heap.allocator(GlibcAllocator).malloc.arenas
            addresses = {arena.address: index for index, arena in enumerate(arenas)}
    except GdbheapError:
        return lambda grown: _growth(grown, False)

    def growth(grown: Grown) -> Growth:
        index = addresses.get(grown.arena) if grown.arena else 0
        return _growth(grown, True, index, None if index is None else largest.get(index))

    return growth
