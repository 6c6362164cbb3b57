"""Which memory is a thread's stack.

A thread's ``struct pthread``, where the thread pointer points, holds its stack's address, size and guard size in three
words that follow each other (nptl/descr.h: ``stackblock``, ``stackblock_size``, ``guardsize``). The kernel may have
merged the stack's mapping with its neighbour, so the mapping alone does not tell where the stack ends.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gdbheap.target.ranges import PAGE_SIZE
from gdbheap.target.target import Target, Thread

DESCRIPTOR_BYTES = 4096
LARGEST_STACK = 1 << 40


@dataclass(frozen=True)
class Stack:
    """The stack of the thread ``tid``: [start, end), its guard pages included."""

    tid: int
    start: int
    end: int


def find_stacks(target: Target) -> list[Stack]:
    """The stacks of all threads, ascending and disjoint."""
    found: list[Stack] = []
    main = target.main_stack
    if main is not None:
        found.append(Stack(target.pid or 0, main.start, main.end))
    for thread in target.threads:
        stack = _thread_stack(target, thread)
        if stack is not None:
            found.append(stack)
    return _disjoint(found)


def _thread_stack(target: Target, thread: Thread) -> Stack | None:
    mapping = target.mappings.find(thread.fs_base)
    if mapping is None or not mapping.anonymous:
        return None
    raw = target.space.read_available(thread.fs_base, min(DESCRIPTOR_BYTES, mapping.end - thread.fs_base))
    words = struct.unpack(f"<{len(raw) // 8}Q", raw[: len(raw) // 8 * 8])
    for block, size, guard in zip(words, words[1:], words[2:]):
        if _is_stack(thread, block, size, guard):
            return Stack(thread.tid, block, block + size)
    return _stack_by_pointer(target, thread)


def _is_stack(thread: Thread, block: int, size: int, guard: int) -> bool:
    aligned = block % PAGE_SIZE == 0 and size % PAGE_SIZE == 0 and guard % PAGE_SIZE == 0 and block
    return bool(aligned) and guard < size < LARGEST_STACK and block < thread.fs_base < block + size


def _stack_by_pointer(target: Target, thread: Thread) -> Stack | None:
    """A stack that the program itself provided: the mapping of the stack pointer, if nothing else is known of it."""
    mapping = target.mappings.find(thread.sp)
    if mapping is None or not mapping.anonymous or mapping.path == "[heap]" or mapping == target.main_stack:
        return None
    return Stack(thread.tid, mapping.start, mapping.end)


def _disjoint(stacks: list[Stack]) -> list[Stack]:
    kept: list[Stack] = []
    for stack in sorted(stacks, key=lambda stack: (stack.start, stack.end)):
        if not kept or kept[-1].end <= stack.start:
            kept.append(stack)
    return kept
