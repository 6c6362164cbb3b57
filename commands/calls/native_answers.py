"""The answers of the commands that call into the process, native in the shell and in gdb alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.answers.arenas import arenas
from gdbheap.answers.stats import Stats, compare
from gdbheap.answers.trim import Trim, compared, trim
from gdbheap.commands.calls.inferior_call import STATS, TRIM, Libc, Purpose, errno_kept, find_libc, prove_safe
from gdbheap.commands.calls.malloc_stats_call import written_by_stats
from gdbheap.commands.calls.native_caller import NativeCaller, Tracer
from gdbheap.target.process import Process

if TYPE_CHECKING:
    from gdbheap.commands.surface.declaration import Options
    from gdbheap.heap import Heap

__all__ = ["native_stats", "native_trim", "refuse_damaged"]

# In seconds. malloc_stats() is taken back after this, malloc_trim() finished by the process itself.
STATS_LIMIT, TRIM_LIMIT = 5.0, 20.0


def native_stats(heap: Heap, tracer: Tracer, options: Options) -> Stats:
    """What malloc_stats() says beside our own figures. Raises GdbheapError."""
    ours = arenas(heap)
    libc, caller = _proven(heap, tracer, options, STATS, STATS_LIMIT)
    return compare(ours, written_by_stats(libc, caller, _mutexes(heap)))


def native_trim(heap: Heap, tracer: Tracer, options: Options) -> Trim:
    """What malloc_trim() gave back beside what was predicted. Raises GdbheapError."""
    target = heap.target
    assert isinstance(target, Process)
    asked = trim(heap, options.pad)
    refuse_damaged(heap)
    libc, caller = _proven(heap, tracer, options, TRIM, TRIM_LIMIT)
    with errno_kept(libc, caller):
        released = caller.call_to_end(libc.address(TRIM.function), options.pad) & 0xFFFFFFFF != 0
    return compared(asked, heap, target.again(), released)


def refuse_damaged(heap: Heap) -> None:
    """Raise when malloc_trim() might find damage and abort the process."""
    if heap.damage:
        first = heap.damage[0]
        raise TRIM.error(
            f"the heap is damaged ({first.what} at {first.address:#x}), and malloc_trim() aborts a process when it "
            "finds that ('heap check' lists the damage)"
        )


def _proven(heap: Heap, tracer: Tracer, options: Options, purpose: Purpose, limit: float) -> tuple[Libc, NativeCaller]:
    """What calls, after the proof that the function can be called without hanging."""
    target = heap.target
    assert isinstance(target, Process)
    libc = find_libc(target, purpose)
    caller = NativeCaller(target, tracer, libc, options.seccomp, limit)
    caller.choose()
    prove_safe(libc, _mutexes(heap), caller)
    return libc, caller


def _mutexes(heap: Heap) -> list[int]:
    return [arena.address for arena in heap.glibc.arenas]
