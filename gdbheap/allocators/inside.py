"""Which threads stand inside malloc: what they were changing is half changed.

malloc.c is one object file, so its functions lie side by side: between the exported functions of its neighbours. A
thread stands inside when its program counter is there or, in the functions of libc that malloc calls (memcpy, brk,
mmap, …), when an address from there stands near the top of its stack. A thread that was killed by a fault or that
aborts is not in the middle of a change: there it is that found the damage.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right

from gdbheap.allocators.glibc import Glibc
from gdbheap.target.elf import LoadedObject
from gdbheap.target.target import Target, Thread

EXPORTED = (
    "malloc", "free", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign", "valloc", "pvalloc",
    "malloc_trim", "malloc_usable_size", "malloc_stats", "malloc_info", "mallinfo", "mallopt",
)  # fmt: skip
STACK_WORDS = 64


def threads_inside(target: Target, glibc: Glibc) -> list[Thread]:
    """The threads that stand inside malloc; none where the functions of libc are not known (no file of that build)."""
    place = malloc_range(glibc.libc)
    if place is None:
        return []
    return [thread for thread in target.threads if _is_inside(target, thread, glibc.libc, place)]


def malloc_range(libc: LoadedObject) -> tuple[int, int] | None:
    """Where malloc.c's functions lie in the target: [start, end); None when the symbols are not known."""
    symbols = {name: found for name, found in libc.symbols().items() if libc.exported(name)}
    spans = sorted((address, address + size) for address, size in symbols.values() if size)
    own = sorted(symbols[name] for name in EXPORTED if name in symbols)
    if not own:
        return None
    first, last = own[0][0], max(address + size for address, size in own)
    before = bisect_left(spans, (first, 0)) - 1
    behind = bisect_right(spans, (last, 0))
    start = spans[before][1] if before >= 0 else first
    return start, spans[behind][0] if behind < len(spans) else last


def _is_inside(target: Target, thread: Thread, libc: LoadedObject, place: tuple[int, int]) -> bool:
    if thread.failed:
        return False
    if place[0] <= thread.pc < place[1]:
        return True
    if not libc.contains(thread.pc):
        return False
    raw = target.space.read_available(thread.sp, 8 * STACK_WORDS)
    words = struct.unpack(f"<{len(raw) // 8}Q", raw[: len(raw) // 8 * 8])
    return any(place[0] <= word < place[1] for word in words)
