"""Call a function of malloc in a live process, after the proof that the call cannot hang.

What must be free before the call, and what happens otherwise:

- Every thread must be outside of malloc. While the process has one thread, malloc takes no lock, and a list that is
  half linked would be read or changed as it is. With more threads, the lock that is held would never be released,
  because only the calling thread runs.
- Every arena's mutex must be 0: malloc_stats() and malloc_trim() lock one arena after another (glibc malloc/malloc.c,
  ``__malloc_stats``, ``__malloc_trim``).

This module restores ``errno``. The caller restores the registers: ``native_caller`` on this machine, gdb on a server.
Nothing here imports gdb."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.glibc.mutation import malloc_range
from gdbheap.errors import GdbheapError, one_line
from gdbheap.text import named

if TYPE_CHECKING:
    from gdbheap.heap import Heap
    from gdbheap.targets.elf import LoadedObject
    from gdbheap.targets.target import Target

__all__ = [
    "FREE_MUTEX",
    "STATS",
    "TRIM",
    "Bytes",
    "Caller",
    "Calls",
    "Libc",
    "Purpose",
    "Stack",
    "Writer",
    "bytes_kept",
    "errno_kept",
    "find_libc",
    "mutexes",
    "prove_safe",
]


Bytes = tuple[int, bytes]
"""An address in the process, and the bytes that belong there."""
FREE_MUTEX = bytes(4)
RUN_ON = "let the process run on and try again"
IN_HANDLER = (
    "try again when the handler has returned; while it waits there it can block every other thread that calls malloc"
)


@dataclass(frozen=True)
class Purpose:
    """A command and the function it calls. ``instead``: what to do if it may not be called; ``limit``: the most seconds
    that it may run."""

    command: str
    function: str
    instead: str
    limit: float

    def error(self, reason: str) -> GdbheapError:
        """Return the error for a function that cannot be called at all."""
        return GdbheapError(f"{self.command}: {reason}: {self.instead}")

    def refusal(self, reason: str, remedy: str = RUN_ON) -> GdbheapError:
        """Return the error for a function that is not called at this moment."""
        return GdbheapError(f"{self.command}: {self.function}() is not called, because {reason}: {remedy}")


# --max-stop limits these times too. When its time is over, malloc_stats() is undone, and malloc_trim() is finished by
# the process itself.
STATS = Purpose("heap stats", "malloc_stats", "use 'heap arenas', which asks nobody", 5.0)
TRIM = Purpose("heap trim", "malloc_trim", "'heap trim' without --yes says what it would give back", 20.0)


@dataclass(frozen=True)
class Stack:
    """The program counters of one thread, innermost first.

    ``broken``: why the walk ended early, "" if it did not; ``interrupted``: more frames may lie beyond a signal
    handler's frame, or on another stack."""

    name: str
    counters: list[int]
    broken: str
    interrupted: bool = False


class Caller(Protocol):
    """The operations on a stopped process."""

    def stacks(self) -> list[Stack]:
        """Return the stack of each thread."""
        ...

    def call(self, function: int, *arguments: int) -> int:
        """Call a function with integer arguments; return its result as a signed 64-bit number. Raises GdbheapError."""
        ...

    def read(self, address: int, size: int) -> bytes:
        """Return memory as it is now. Raises GdbheapError."""
        ...


class Writer(Caller, Protocol):
    """A caller that can also write memory."""

    def write(self, address: int, data: bytes) -> None:
        """Write to the process's memory. Raises GdbheapError."""
        ...


@dataclass(frozen=True)
class Libc:
    """The process's C library, read from a file with the same build-id as in memory."""

    loaded: LoadedObject
    target: Target
    purpose: Purpose

    def address(self, name: str) -> int:
        """Return the address of a function or variable. Raises GdbheapError if there is none."""
        found = self.loaded.symbol(name)
        if found is None:
            raise self.purpose.error(f"{named(self.loaded.path)} has no {name}")
        return found

    def has(self, name: str) -> bool:
        """Return whether there is a symbol ``name``."""
        return self.loaded.symbol(name) is not None


class Calls(Protocol):
    """Calls of functions in a stopped process: by gdbheap itself on this machine, by gdb on a server."""

    def call_to_end(self, heap: Heap, purpose: Purpose, seccomp: bool, *arguments: int) -> int:
        """Call the function of ``purpose`` after the proof that it can neither hang nor do harm, and return its result
        as a signed 64-bit number. The function must not be abandoned halfway.

        ``seccomp``: call even if a seccomp filter may refuse the call. Raises GdbheapError."""
        ...

    def stats_text(self, heap: Heap, seccomp: bool) -> str:
        """Return what malloc_stats() prints, without any output of the process. Raises GdbheapError."""
        ...

    def again(self) -> Target:
        """Return the process as it is after a call, as a new target."""
        ...


def mutexes(heap: Heap) -> list[int]:
    """Return the addresses of the arenas; the first word of each is its mutex."""
    return [arena.address for arena in heap.allocator(GlibcAllocator).malloc.arenas]


def find_libc(target: Target, purpose: Purpose = STATS) -> Libc:
    """Return the C library that has the function. Raises GdbheapError if no local file equals the process's."""
    for loaded in target.objects:
        if loaded.exported(purpose.function) and loaded.exported("gnu_get_libc_version"):
            return Libc(loaded, target, purpose)
    raise purpose.error(
        f"no file here has the build-id of the process's C library, so that {purpose.function}() is not found"
    )


def prove_safe(libc: Libc, arenas: Sequence[int], caller: Caller) -> None:
    """Raise GdbheapError, with the thread and the reason, unless the call cannot hang. ``arenas``: their addresses."""
    _check_threads(libc, caller.stacks())
    for index, address in enumerate(arenas):
        if caller.read(address, 4) != FREE_MUTEX:
            raise libc.purpose.refusal(f"the mutex of arena {index} at {address:#x} is held")


def _check_threads(libc: Libc, stacks: Sequence[Stack]) -> None:
    place = malloc_range(libc.loaded)
    if place is None:
        raise libc.purpose.error(f"{named(libc.loaded.path)} has no malloc")
    start, end = place
    for stack in stacks:
        inside = (at for at, counter in enumerate(stack.counters) if start <= counter < end or start < counter <= end)
        first = next(inside, None)
        if first is not None:
            # malloc calls nothing outside of the C library and the kernel.
            if not all(libc.loaded.contains(counter) for counter in stack.counters[:first]):
                reason = f"thread {stack.name} runs a signal handler that interrupted malloc"
                raise libc.purpose.refusal(reason, IN_HANDLER)
            raise libc.purpose.refusal(f"thread {stack.name} is inside malloc")
        if stack.broken and _leaves_unknown(libc, stack):
            reason = f"thread {stack.name} may be inside malloc (its stack breaks off: {one_line(stack.broken)})"
            raise libc.purpose.refusal(reason)


def _leaves_unknown(libc: Libc, stack: Stack) -> bool:
    """Return whether malloc may lie beyond the point where a stack broke off. That is so inside the C library, because
    malloc calls nothing outside of it and the kernel, and in what may be a signal handler that interrupted malloc."""
    return not stack.counters or stack.interrupted or libc.loaded.contains(stack.counters[-1])


@contextlib.contextmanager
def errno_kept(libc: Libc, caller: Writer) -> Iterator[None]:
    """Restore errno at the end of the block: the thread may be between a failed system call and its check of errno."""
    with bytes_kept(caller, caller.call(libc.address("__errno_location")), 4):
        yield


@contextlib.contextmanager
def bytes_kept(caller: Writer, address: int, size: int) -> Iterator[None]:
    """Restore these bytes at the end of the block."""
    before = caller.read(address, size)
    try:
        yield
    finally:
        if caller.read(address, size) != before:
            caller.write(address, before)
