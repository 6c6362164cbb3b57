"""Make calls in a process on this machine. In a shell gdbheap traces the process and makes the calls; inside gdb, gdb's
own thread makes the calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.commands.inferior_calls.inferior_call import (
    FREE_MUTEX,
    STATS,
    CallPurpose,
    Libc,
    find_libc,
    mutexes,
    prove_safe,
)
from gdbheap.commands.inferior_calls.malloc_stats_call import written_by_stats
from gdbheap.commands.inferior_calls.native_caller import NativeCaller, Tracer, errno_of

if TYPE_CHECKING:
    from gdbheap.heap import Heap
    from gdbheap.targets.process import Process
    from gdbheap.targets.target import Target

__all__ = ["LocalCalls"]


class LocalCalls:
    """Implements ``inferior_call.Calls`` for a local process. ``tracer``: the object that makes the calls."""

    def __init__(self, process: Process, tracer: Tracer) -> None:
        self._process = process
        self._tracer = tracer

    def call_to_end(self, heap: Heap, purpose: CallPurpose, seccomp: bool, *arguments: int) -> int:
        """Call the function of ``purpose`` and return its result.

        errno is restored afterwards. If the call is undone, the arenas' mutexes are freed again."""
        libc, caller = self._proven(heap, purpose, seccomp)
        kept, freed = [errno_of(libc, caller)], [(mutex, FREE_MUTEX) for mutex in mutexes(heap)]
        return caller.call_to_end(libc.address(purpose.function), *arguments, kept=kept, freed=freed)

    def stats_text(self, heap: Heap, seccomp: bool) -> str:
        libc, caller = self._proven(heap, STATS, seccomp)
        return written_by_stats(libc, caller, mutexes(heap))

    def again(self) -> Target:
        return self._process.again()

    def _proven(self, heap: Heap, purpose: CallPurpose, seccomp: bool) -> tuple[Libc, NativeCaller]:
        """Return the C library and a caller, after the proof that the call of the function cannot hang."""
        libc = find_libc(self._process, purpose)
        caller = NativeCaller(self._process, self._tracer, libc, seccomp, purpose.limit)
        caller.choose()
        prove_safe(libc, mutexes(heap), caller)
        return libc, caller
