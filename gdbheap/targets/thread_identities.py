"""Find threads by the number that ``pthread_self()`` returns: the address of their ``struct pthread``."""

from __future__ import annotations

from bisect import bisect_right

from gdbheap.targets.stack_mappings import DESCRIPTOR_BYTES
from gdbheap.targets.target import Target, Thread

__all__ = ["ThreadIdentities"]


class ThreadIdentities:
    """The threads of a target by ``pthread_self()``. Programs such as Python use it as a thread's number.

    On machines where ``struct pthread`` begins at the thread pointer, the number equals the thread pointer. On other
    machines the struct ends at the thread pointer, and its size depends on the C library. The first search determines
    this size: the struct reaches from the number to the next thread pointer, and contains the thread's id.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._threads = {thread.thread_pointer: thread for thread in target.threads if thread.thread_pointer}
        self._pointers = sorted(self._threads)
        self._size = 0 if target.machine.storage.data_below else None

    def find(self, identity: int) -> Thread | None:
        """Return the thread for which ``pthread_self()`` returns ``identity``; None if there is none."""
        if self._size is None:
            self._size = self._size_by(identity)
        return None if self._size is None else self._threads.get(identity + self._size)

    def _size_by(self, identity: int) -> int | None:
        place = bisect_right(self._pointers, identity)
        pointer = self._pointers[place] if place < len(self._pointers) else identity
        if not 0 < pointer - identity <= DESCRIPTOR_BYTES or identity % self._target.machine.word:
            return None
        own = self._target.space.read_available(identity, pointer - identity)
        numbers = self._target.machine.structure("I" * (len(own) // 4)).unpack(own[: len(own) // 4 * 4])
        return pointer - identity if self._threads[pointer].tid in numbers else None
