"""Find the memory of each thread's stack.

The bounds of a stack must be known. The first thread's stack is the kernel's ``[stack]``. For other threads the C
library keeps a record in the ``struct pthread``, to which the thread pointer points. Three consecutive words of the
struct are the stack's address, size and guard size (nptl/descr.h: ``stackblock``, ``stackblock_size``, ``guardsize``;
musl's pthread_impl.h: ``map_base``, ``map_size``, ``stack``, ``stack_size``). Without a record, a stack is bounded by
its guard page: a small mapping directly below it that cannot be read. A mapping alone is not a bound. The kernel may
have merged a stack's mapping with its neighbours. A runtime (Go) or a coroutine library keeps many small stacks in its
own memory. A stack pointer into a mapping therefore says nothing about the rest of this mapping.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from gdbheap.dataclass import dataclass
from gdbheap.targets.mappings import Mapping
from gdbheap.targets.ranges import Ranges, containing, holds, joined, within
from gdbheap.targets.target import Target, Thread

DESCRIPTOR_BYTES = 4 << 10
LARGEST_STACK = 1 << 40
# Without a record: the largest guard, and the largest stack above a guard. Larger unreadable memory is reserved address
# space, for example of an arena or a runtime, and does not bound a stack.
LARGEST_GUARD, LARGEST_GUARDED = 1 << 20, 16 << 20
# In a stack without known bounds, this many bytes above the stack pointer count as live.
LIVE_WITHOUT_BOUNDS = 256 << 10


@dataclass(frozen=True)
class Stack:
    """The stack of the thread ``tid``: [start, end), including its guard pages.

    ``provided``: whether the program may have allocated the stack as a block (pthread_attr_setstack). This is so if the
    C library's record has no guard, or if there is no record.
    """

    tid: int
    start: int
    end: int
    provided: bool = False


def find_stacks(target: Target) -> list[Stack]:
    """Return the stacks of all threads, ascending and disjoint; stacks without known bounds are left out."""
    found: list[Stack] = []
    main = target.main_stack
    if main is not None:
        found.append(Stack(target.pid or 0, main.start, main.end))
    plain = joined([(one.start, one.end) for one in target.mappings if _is_plain(one)])
    others = [(one.start, one.end) for one in target.mappings if not (one.anonymous and one.private)]
    for thread in target.threads:
        stack = _by_record(target, thread, others) or _by_guard(target, thread, plain)
        if stack is not None:
            found.append(stack)
    return _disjoint(found)


def live_parts(target: Target, stacks: Sequence[Stack]) -> Ranges:
    """Return the parts of the stacks that may be in use.

    The used part of a stack begins at the lowest stack pointer in it, less the red zone. It ends with the stack. A
    stack without a stack pointer is returned whole: its thread now runs on another stack, for example of a coroutine.
    """
    pointers = sorted(thread.sp for thread in target.threads)
    found = []
    for stack in stacks:
        place = bisect_left(pointers, stack.start)
        is_here = place < len(pointers) and pointers[place] < stack.end
        low = pointers[place] - target.machine.red_zone if is_here else stack.start
        found.append((max(stack.start, low), stack.end))
    return found


def unbounded(target: Target, stacks: Sequence[Stack]) -> Ranges:
    """Return the memory that may be in use at stack pointers outside all ``stacks``.

    For each pointer this is the memory above it, at most LIVE_WITHOUT_BOUNDS bytes, up to the end of its mapping. It is
    not proven that this memory is the thread's stack.
    """
    known = [(stack.start, stack.end) for stack in stacks]
    found = []
    for thread in target.threads:
        mapping = target.mappings.find(thread.sp)
        if mapping is not None and _is_plain(mapping) and not holds(known, thread.sp):
            low = max(mapping.start, thread.sp - target.machine.red_zone)
            found.append((low, min(mapping.end, thread.sp + LIVE_WITHOUT_BOUNDS)))
    return sorted(set(found))


def _by_record(target: Target, thread: Thread, others: Ranges) -> Stack | None:
    """Return a thread's stack by the record of its C library, glibc or musl; None without a record.

    ``others``: shared or file memory; a record that names such memory is ignored.
    """
    words = _descriptor(target, thread)
    for block, size, third, fourth in zip(words, words[1:], words[2:], (*words[3:], 0)):
        if _is_stack(target, thread, block, size) and not within(others, block, block + size):
            if target.machine.is_paged(third) and third < size:
                return Stack(thread.tid, block, block + size, provided=third == 0)
            if block < third <= thread.thread_pointer and 0 < fourth <= third - block:
                return Stack(thread.tid, block, block + size)
    return None


def _descriptor(target: Target, thread: Thread) -> tuple[int, ...]:
    """Return the words of a thread's ``struct pthread``; empty if it is not readable.

    On some machines the word at the thread pointer contains its own address, in glibc and in musl. Without this
    address, no words are returned.
    """
    storage, pointer = target.machine.storage, thread.thread_pointer
    mapping = target.mappings.find(pointer)
    if mapping is None or not mapping.anonymous:
        return ()
    start, end = storage.descriptor(pointer, DESCRIPTOR_BYTES)
    start = max(start, mapping.start)
    words = target.machine.words_of(target.space.read_available(start, min(end, mapping.end) - start))
    return () if storage.has_self_pointer and words[:1] != (pointer,) else words


def _is_stack(target: Target, thread: Thread, block: int, size: int) -> bool:
    aligned = target.machine.is_paged(block, size) and block
    return bool(aligned) and 0 < size < LARGEST_STACK and block < thread.thread_pointer < block + size


def _by_guard(target: Target, thread: Thread, plain: Ranges) -> Stack | None:
    """Return the stack of a thread without a record, found by its guard page; None if there is none.

    The stack is the ``plain`` memory around the stack pointer. This memory must not be too large, and a small
    unreadable mapping must lie directly below it.
    """
    start, end = containing(plain, thread.sp) or (0, 0)
    guard = target.mappings.find(start - 1)
    if guard is None or not _is_guard(guard, start) or end - start > LARGEST_GUARDED:
        return None
    return Stack(thread.tid, guard.start, end, provided=True)


def _is_plain(mapping: Mapping) -> bool:
    """Return whether a mapping is private writable anonymous memory, without a name or with a thread stack's name."""
    named = mapping.path and "stack" not in mapping.path
    return mapping.anonymous and mapping.private and mapping.writable and not named and mapping.path != "[stack]"


def _is_guard(mapping: Mapping, start: int) -> bool:
    closed = not (mapping.readable or mapping.writable or mapping.executable)
    return mapping.end == start and closed and mapping.anonymous and mapping.size <= LARGEST_GUARD


def _disjoint(stacks: list[Stack]) -> list[Stack]:
    kept: list[Stack] = []
    for stack in sorted(stacks, key=lambda stack: (stack.start, stack.end)):
        if not kept or kept[-1].end <= stack.start:
            kept.append(stack)
    return kept
