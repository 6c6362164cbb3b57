"""Decide which damage may be a change that a thread was making inside malloc when it was stopped.

An arena's bins, sizes and top are changed under the arena's lock, or without it if the process has one thread. Fast
bins, thread caches and the counts of mmapped chunks are changed without a lock.

malloc.c is one object file, so its functions lie side by side in libc, between the exported functions of neighbouring
object files. A thread is inside malloc if its program counter is in that range. malloc also calls functions such as
memcpy, brk and mmap. A thread in such a function is inside malloc if a return address into that range lies on top of
its stack. If a thread has failed inside malloc, by a fault or by abort(), no damage is excused, because it may have
caused the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gdbheap.allocators.glibc.arenas import Glibc
from gdbheap.allocators.glibc.locate import LARGEST_LOCK
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.target import Damage, Target, Thread

EXPORTED = (
    "aligned_alloc", "calloc", "cfree", "free", "mallinfo", "mallinfo2", "malloc", "malloc_info", "malloc_stats",
    "malloc_trim", "malloc_usable_size", "mallopt", "memalign", "posix_memalign", "pvalloc", "realloc", "valloc",
    "__default_morecore", "__libc_calloc", "__libc_free", "__libc_mallinfo", "__libc_malloc", "__libc_memalign",
    "__libc_pvalloc", "__libc_realloc", "__libc_valloc",
)  # fmt: skip
# malloc.o has about 20 KiB of code. Functions farther from malloc() belong to another section or object file.
MAX_DISTANCE = 64 << 10
# How many words of the stack are searched. Functions that malloc calls have small frames. Between a failure inside
# malloc and its signal, functions with large frames run.
STACK_WORDS, STACK_WORDS_OF_FAILED = 64, 1024
WITHOUT_LOCK = ("list of a thread cache", "link of a fast bin")
MAX_EXCUSED = 16


class Changes:
    """The changes that threads may be making inside malloc.

    ``inside``: the threads inside malloc; empty if libc's file is absent, because only the file says where the
    functions of malloc lie."""

    def __init__(self, target: Target, glibc: Glibc) -> None:
        place = malloc_range(glibc.libc)
        self._arenas = [(state.address, state.address + state.layout["size"]) for state in glibc.arenas]
        self._locked = {index for index, state in enumerate(glibc.arenas) if 0 < state.lock <= LARGEST_LOCK}
        self._alone = len(target.threads) <= 1
        standing = [thread for thread in target.threads if place and _stands(target, thread, glibc.libc, place)]
        self.inside = [thread for thread in standing if not thread.failed]
        failed = [thread for thread in (standing if place else target.threads) if thread.failed]
        self.excuses = not failed and bool(self.inside or self._locked)

    def explain(self, damage: Sequence[Damage], arena_of: Callable[[int], int | None]) -> list[bool]:
        """Return for each inconsistency whether an unfinished change by a thread can explain it.

        ``arena_of`` gives the index of the arena in which a chunk's address lies.
        """
        found = [self.excuses and self._explains(place, arena_of(place.address)) for place in damage]
        # One thread can leave only a few words half changed.
        most = MAX_EXCUSED * max(len(self.inside), len(self._locked))
        return found if sum(found) <= most else [False] * len(found)

    def _explains(self, damage: Damage, arena: int | None) -> bool:
        if arena is None:
            own = (index for index, (start, end) in enumerate(self._arenas) if start <= damage.address < end)
            arena = next(own, None)
        if arena is None or damage.what in WITHOUT_LOCK or self._alone:
            return bool(self.inside)
        return arena in self._locked


def malloc_range(libc: LoadedObject) -> tuple[int, int] | None:
    """Return a range [start, end) that contains the code of malloc.c; None if malloc() is not exported.

    The range reaches from the exported symbol below the lowest function of malloc.c to the exported symbol above the
    highest. Static functions of malloc.o lie in between, because the linker keeps an object file's code together."""
    door = libc.symbol("malloc") if libc.exported("malloc") else None
    if door is None:
        return None
    places = [libc.symbol(name) or 0 for name in EXPORTED if libc.exported(name)]
    own = [address for address in (door, *places) if abs(address - door) < MAX_DISTANCE]
    below, above = libc.exported_gap(min(own), max(own))
    return libc.base if below is None else below, libc.end if above is None else above


def _stands(target: Target, thread: Thread, libc: LoadedObject, place: tuple[int, int]) -> bool:
    if place[0] <= thread.pc < place[1]:
        return True
    number = target.system_call(thread)
    waits = not thread.failed and number is not None and number not in target.machine.system_calls.of_malloc
    if waits or not libc.contains(thread.pc):
        return False
    count = STACK_WORDS_OF_FAILED if thread.failed else STACK_WORDS
    raw = target.space.read_available(thread.sp, target.machine.word * count)
    return any(place[0] <= word < place[1] for word in target.machine.codes_of(raw))
