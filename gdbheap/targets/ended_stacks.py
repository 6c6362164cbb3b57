"""Stacks of threads that ended, which glibc keeps for threads to come (nptl/allocatestack.c, ``_dl_stack_cache``).

No thread runs there, so what lies there refers to nothing. Such a stack has its own ``struct pthread`` near its end, in
which three words follow each other: the stack's address, its size and its guard's (``stackblock``,
``stackblock_size``, ``guardsize``). No thread's stack pointer or thread pointer leads there, and the thread's number is
none: the kernel clears it, and pthread_join writes -1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from gdbheap.machines.machine import Machine
from gdbheap.targets.stack_mappings import DESCRIPTOR_BYTES, LARGEST_STACK, Stack
from gdbheap.targets.target import Target

# The most thread-local data above a ``struct pthread``.
MAX_TLS = 16 << 10
# The record's words, from the first: the stack's address.
RECORD_WORDS = 3
# The number that a thread has once it ended.
NO_THREAD = (0, (1 << 32) - 1)
# The word behind ``struct pthread``'s own address is that of the thread's table of thread-local data (``dtv``).
DTV_WORD = 1


@dataclass(frozen=True)
class EndedStack:
    """The stack of no thread: [start, end), its guard included.

    ``kept``: the word of its ``struct pthread`` that refers to the table of thread-local data, a block in use."""

    start: int
    end: int
    kept: tuple[int, int]


def find_ended(target: Target, stacks: Sequence[Stack]) -> list[EndedStack]:
    """Return the stacks of ended threads, ascending; ``stacks``: those of the threads that run."""
    found: list[EndedStack] = []
    ends = [mapping.end for mapping in target.mappings if _may_be_stack(target, mapping.start)]
    # The kernel merges the mappings of stacks whose guards are no mappings (MADV_GUARD_INSTALL).
    ends += [stack.start for stack in stacks]
    seen = {stack.end for stack in stacks}
    alive = _Alive(target)
    while ends:
        end = ends.pop()
        stack = None if end in seen else _ended_below(target, alive, end)
        seen.add(end)
        if stack is not None:
            found.append(stack)
            ends.append(stack.start)
    return sorted(found, key=lambda stack: stack.start)


def _may_be_stack(target: Target, address: int) -> bool:
    mapping = target.mappings.find(address)
    return mapping is not None and mapping.anonymous and mapping.private and mapping.writable and not mapping.path


def _ended_below(target: Target, alive: _Alive, end: int) -> EndedStack | None:
    """Return the stack that ends at ``end``, if a record there says so and it is no living thread's."""
    if not _may_be_stack(target, end - target.machine.word):
        return None
    machine = target.machine
    room = DESCRIPTOR_BYTES + (0 if machine.storage.data_below else MAX_TLS)
    start = max(target.mappings.find(end - 1).start, end - room)  # type: ignore[union-attr]
    words = machine.words_of(target.space.read_available(start, end - start))
    for place in _records(machine, words, end):
        block = words[place]
        if not alive.is_in(block, end):
            kept = _kept(target, alive, words, start)
            if kept is not None:
                return EndedStack(block, end, kept)
    return None


def _records(machine: Machine, words: Sequence[int], end: int) -> Iterator[int]:
    """Yield the places of words that are a record of a stack that ends at ``end``."""
    for place in range(len(words) - RECORD_WORDS + 1):
        block, size, guard = words[place : place + RECORD_WORDS]
        if block + size == end and 0 < block and guard < size < LARGEST_STACK and machine.is_paged(block, size, guard):
            yield place


class _Alive:
    """The threads that run: where their pointers lead, and where ``struct pthread`` has the number of a thread."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pointers = sorted(one for thread in target.threads for one in (thread.sp, thread.thread_pointer))

    def is_in(self, start: int, end: int) -> bool:
        """Return whether a pointer of theirs leads to [start, end]."""
        place = bisect_left(self._pointers, start)
        return place < len(self._pointers) and self._pointers[place] <= end

    @cached_property
    def _number_at(self) -> int | None:
        halves = self._target.machine.structure("I" * (DESCRIPTOR_BYTES // 4))
        for thread in self._target.threads:
            own = self._target.space.read_available(thread.thread_pointer, DESCRIPTOR_BYTES)
            if len(own) == DESCRIPTOR_BYTES and thread.tid in (found := halves.unpack(own)):
                return 4 * found.index(thread.tid)
        return None

    def number(self, descriptor: int) -> int:
        """Return the thread's number, 0 where it ended or where it is not known which word that is."""
        if self._number_at is None:
            return 0
        read = self._target.space.read_available(descriptor + self._number_at, 4)
        return int.from_bytes(read, "little") if len(read) == 4 else 0


def _kept(target: Target, alive: _Alive, words: Sequence[int], start: int) -> tuple[int, int] | None:
    """Return where ``struct pthread`` refers to its table of thread-local data; None where its thread is alive.

    Where no word says where the struct begins, all that was read is kept."""
    machine = target.machine
    if not machine.storage.has_self_pointer:
        return start, start + len(words) * machine.word
    for place, word in enumerate(words):
        at = start + place * machine.word
        if word == at and words[place + 2 : place + 3] == (at,):
            if alive.number(at) not in NO_THREAD:
                return None
            return at + DTV_WORD * machine.word, at + (DTV_WORD + 1) * machine.word
    return None
