"""Stacks of ended threads, which glibc keeps for new threads (nptl/allocatestack.c, ``_dl_stack_cache``).

No thread runs on such a stack, so its contents are not references. Near its end it has the ended thread's ``struct
pthread``, with three consecutive words: the address of the stack, its size and the size of its guard (``stackblock``,
``stackblock_size``, ``guardsize``). No thread's stack pointer or thread pointer points into the stack. The thread
number in the struct is invalid: the kernel clears it, and pthread_join writes -1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property

from gdbheap.dataclass import dataclass
from gdbheap.machines.machine import Machine
from gdbheap.targets.stack_mappings import DESCRIPTOR_BYTES, LARGEST_STACK, Stack
from gdbheap.targets.target import Target

# The most thread-local data above a ``struct pthread``.
MAX_TLS = 16 << 10
# The number of words in a stack's record; the first is the stack's address.
RECORD_WORDS = 3
# The thread numbers that mark an ended thread.
NO_THREAD = (0, (1 << 32) - 1)
# The word after ``struct pthread``'s own address points to the thread's table of thread-local data (``dtv``).
DTV_WORD = 1


@dataclass(frozen=True)
class EndedStack:
    """A stack whose thread has ended: [start, end), its guard included.

    ``kept``: the range of the word in its ``struct pthread`` that points to the table of thread-local data, which is a
    block in use.
    """

    start: int
    end: int
    kept: tuple[int, int]


def find_ended(target: Target, stacks: Sequence[Stack]) -> list[EndedStack]:
    """Return the stacks of ended threads, ascending. ``stacks``: the stacks of running threads."""
    found: list[EndedStack] = []
    ends = [mapping.end for mapping in target.mappings if _may_be_stack(target, mapping.start)]
    # The kernel merges the mappings of stacks whose guards are not mappings (MADV_GUARD_INSTALL).
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
    """Return the stack that ends at ``end``; None if no record says so, or if a running thread uses it."""
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
    """Yield the indexes of words at which the record of a stack that ends at ``end`` may begin."""
    for place in range(len(words) - RECORD_WORDS + 1):
        block, size, guard = words[place : place + RECORD_WORDS]
        if block + size == end and 0 < block and guard < size < LARGEST_STACK and machine.is_paged(block, size, guard):
            yield place


class _Alive:
    """The running threads: their stack and thread pointers, and the offset of the thread number in ``struct
    pthread``.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pointers = sorted(one for thread in target.threads for one in (thread.sp, thread.thread_pointer))

    def is_in(self, start: int, end: int) -> bool:
        """Return whether a stack pointer or thread pointer of a running thread points into [start, end]."""
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
        """Return the thread number in a ``struct pthread``; 0 if the thread has ended or the offset is unknown."""
        if self._number_at is None:
            return 0
        read = self._target.space.read_available(descriptor + self._number_at, 4)
        return int.from_bytes(read, "little") if len(read) == 4 else 0


def _kept(target: Target, alive: _Alive, words: Sequence[int], start: int) -> tuple[int, int] | None:
    """Return the range of the word that points to thread-local data; None if the stack's thread still runs.

    If no word shows where the ``struct pthread`` begins, all of the range that was read is returned.
    """
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
