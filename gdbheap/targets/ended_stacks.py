"""Stacks of ended threads, which glibc keeps for new threads (nptl/allocatestack.c, ``_dl_stack_cache``).

No thread runs on such a stack, so its contents are not references. Near its end lies the ended thread's ``struct
pthread``. Three consecutive words of the struct are the address of the stack, its size and the size of its guard
(``stackblock``, ``stackblock_size``, ``guardsize``). No thread's stack pointer or thread pointer points into the stack.
The thread number in the struct is invalid: the kernel clears it, and pthread_join writes -1.

If a thread ended, and it was neither joined nor detached, glibc keeps its stack for pthread_join. Such a stack is in
the same ring as the stacks of running threads (``_dl_stack_used``). Each ``struct pthread`` has its links in the two
words before the thread number. In the child of a fork, the stacks of the parent's threads are in the ring of stacks for
new threads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
# The word of ``struct pthread`` that has its own address (``header.self``).
SELF_WORD = 2


@dataclass(frozen=True)
class EndedStack:
    """A stack whose thread has ended: [start, end), its guard included.

    ``kept``: the range of the word in its ``struct pthread`` that points to the table of thread-local data. This table
    is a block in use.
    ``descriptor``: the address of the ``struct pthread``; None if unknown.
    ``is_joinable``: whether the thread certainly still waits for pthread_join or pthread_detach, which releases the
    stack.
    """

    start: int
    end: int
    kept: tuple[int, int]
    descriptor: int | None = None
    is_joinable: bool = False


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
    rings = _Rings(target, alive, found)
    found = [replace(stack, is_joinable=rings.has_running(stack)) for stack in found]
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
                words_before_dtv = DTV_WORD * machine.word if machine.storage.has_self_pointer else None
                return EndedStack(block, end, kept, None if words_before_dtv is None else kept[0] - words_before_dtv)
    return None


def _records(machine: Machine, words: Sequence[int], end: int) -> Iterator[int]:
    """Yield the indexes of words at which the record of a stack that ends at ``end`` may begin."""
    for place in range(len(words) - RECORD_WORDS + 1):
        block, size, guard = words[place : place + RECORD_WORDS]
        if block + size == end and 0 < block and guard < size < LARGEST_STACK and machine.is_paged(block, size, guard):
            yield place


class _Alive:
    """The running threads: their stack pointers and thread pointers, by which stacks in use are recognised."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pointers = sorted(one for thread in target.threads for one in (thread.sp, thread.thread_pointer))

    def is_in(self, start: int, end: int) -> bool:
        """Return whether a stack pointer or thread pointer of a running thread points into [start, end]."""
        place = bisect_left(self._pointers, start)
        return place < len(self._pointers) and self._pointers[place] <= end

    @cached_property
    def number_at(self) -> int | None:
        """The offset in bytes of the thread number in ``struct pthread``; None if it is unknown."""
        halves = self._target.machine.structure("I" * (DESCRIPTOR_BYTES // 4))
        for thread in self._target.threads:
            own = self._target.space.read_available(thread.thread_pointer, DESCRIPTOR_BYTES)
            if len(own) == DESCRIPTOR_BYTES and thread.tid in (found := halves.unpack(own)):
                return 4 * found.index(thread.tid)
        return None

    def number(self, descriptor: int) -> int:
        """Return the thread number in a ``struct pthread``; 0 if the thread has ended or the offset is unknown."""
        if self.number_at is None:
            return 0
        read = self._target.space.read_available(descriptor + self.number_at, 4)
        return int.from_bytes(read, "little") if len(read) == 4 else 0


def _kept(target: Target, alive: _Alive, words: Sequence[int], start: int) -> tuple[int, int] | None:
    """Return the range of the word in ``struct pthread`` that points to thread-local data.

    Return None if the stack's thread still runs, or if no ``struct pthread`` is found. On machines where the struct
    does not contain its own address, all of the range that was read is returned.
    """
    machine = target.machine
    if not machine.storage.has_self_pointer:
        return start, start + len(words) * machine.word
    for place, word in enumerate(words):
        at = start + place * machine.word
        if word == at and words[place + SELF_WORD : place + SELF_WORD + 1] == (at,):
            if alive.number(at) not in NO_THREAD:
                return None
            return at + DTV_WORD * machine.word, at + (DTV_WORD + 1) * machine.word
    return None


class _Rings:
    """The circular lists (glibc's ``list_t``), here called rings, that link the ``struct pthread`` of ended threads.

    Each ring has one head in static data. Running threads' stacks are in one of the rings.
    """

    def __init__(self, target: Target, alive: _Alive, found: Sequence[EndedStack]) -> None:
        self._target, self._alive = target, alive
        number, word = (alive.number_at if found else None), target.machine.word
        self._links_at = None if number is None or number < 2 * word else number - 2 * word
        self._ended = {stack.descriptor for stack in found if stack.descriptor is not None}
        self._running = {thread.thread_pointer for thread in target.threads}
        # By descriptor: whether the ring of this ended thread also has running threads.
        self._known: dict[int, bool] = {}

    def has_running(self, stack: EndedStack) -> bool:
        """Return whether an ended thread still waits for pthread_join. Its stack is then in the ring of running
        threads' stacks, and it is not detached.
        """
        own = stack.descriptor
        if self._links_at is None or own is None or self._alive.number(own) != 0 or self._names_itself(stack):
            return False
        if own not in self._known:
            members, head = self._ring(own)
            is_used = head is not None and (bool(self._running & members) or self._is_before_main(head))
            self._known |= dict.fromkeys(self._ended & members, is_used)
        return self._known[own]

    def _names_itself(self, stack: EndedStack) -> bool:
        """Return whether a word of a ``struct pthread``, after its first words, is the struct's own address.

        The thread is then detached: its word ``joinid`` has this value. Return True also if the struct cannot be read.
        """
        own = stack.descriptor or 0
        size = min(DESCRIPTOR_BYTES, stack.end - own)
        read = self._target.space.read_available(own, size)
        return len(read) < size or own in self._target.machine.words_of(read)[SELF_WORD + 1 :]

    def _ring(self, first: int) -> tuple[set[int], int | None]:
        """Return the descriptors in the ring of the descriptor ``first``, and the address of the ring's head.

        The head is the only link outside of all descriptors. It is None if the links form no such ring.
        """
        assert self._links_at is not None
        known = self._ended | self._running
        members, heads, place, before = {first}, list[int](), first + self._links_at, 0
        while len(heads) <= 1:
            link = self._links(place)
            if link is None or (before and link[1] != before):
                break
            before, place = place, link[0]
            own = place - self._links_at
            if own in members:
                return members, heads[0] if own == first and len(heads) == 1 else None
            if own in known:
                members.add(own)
            else:
                heads.append(place)
        return members, None

    def _links(self, place: int) -> tuple[int, int] | None:
        """Return the addresses of the next and the previous link, from the link at ``place``; None if it cannot be
        read.
        """
        machine = self._target.machine
        words = machine.words_of(self._target.space.read_available(place, 2 * machine.word))
        return (words[0], words[1]) if len(words) == 2 else None

    def _is_before_main(self, head: int) -> bool:
        """Return whether the next ring in memory contains only the first thread.

        If so, that ring is ``_dl_stack_user``, and ``head`` belongs to ``_dl_stack_used``, which precedes it since
        glibc 2.34.
        """
        main = next((one for one in self._target.threads if one.tid == self._target.pid), None)
        if main is None or self._links_at is None:
            return False
        place = head + 2 * self._target.machine.word
        return self._links(place) == (main.thread_pointer + self._links_at,) * 2
