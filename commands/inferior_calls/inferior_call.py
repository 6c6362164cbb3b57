"""Calling a function of malloc's in a live process, after the proof that the call cannot hang.

What must be free before the call, and what each costs when it is not:

- every thread must be outside of malloc. While the process has one thread, malloc takes no lock, and a list that is
  half linked is read or changed as it is; with more threads the lock that is held would never be released, because only
  the calling thread runs;
- every arena's mutex must be 0: malloc_stats() and malloc_trim() lock one after the other (glibc malloc/malloc.c,
  ``__malloc_stats``, ``__malloc_trim``).

``errno`` is put back; the registers are put back by whoever calls: ``native_caller`` on this machine, gdb on a server.
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
"""A place in the process and what belongs there."""
FREE_MUTEX = bytes(4)
RUN_ON = "let the process run on and try again"
IN_HANDLER = (
    "try again when the handler has returned; while it waits there it can block every other thread that calls malloc"
)


@dataclass(frozen=True)
class Purpose:
    """Which command calls which function, what to do when it may not be called, and for how many seconds it may run."""

    command: str
    function: str
    instead: str
    limit: float

    def error(self, reason: str) -> GdbheapError:
        """It cannot be called at all."""
        return GdbheapError(f"{self.command}: {reason}: {self.instead}")

    def refusal(self, reason: str, remedy: str = RUN_ON) -> GdbheapError:
        """It is not called at this moment."""
        return GdbheapError(f"{self.command}: {self.function}() is not called, because {reason}: {remedy}")


# The times are limited by what --max-stop leaves, too. malloc_stats() is undone when its time is over, malloc_trim()
# finished by the process itself.
STATS = Purpose("heap stats", "malloc_stats", "use 'heap arenas', which asks nobody", 5.0)
TRIM = Purpose("heap trim", "malloc_trim", "'heap trim' without --yes says what it would give back", 20.0)


@dataclass(frozen=True)
class Stack:
    """The program counters of one thread, innermost first. ``broken``: why the walk ended early, "" if it did not;
    ``interrupted``: whether more may lie beyond the frame of a signal handler, or on another stack."""

    name: str
    counters: list[int]
    broken: str
    interrupted: bool = False


class Caller(Protocol):
    """What can be done in the stopped process."""

    def stacks(self) -> list[Stack]:
        """The stack of every thread."""
        ...

    def call(self, function: int, *arguments: int) -> int:
        """Call a function with integers; its result as a signed 64-bit number. Raises GdbheapError."""
        ...

    def read(self, address: int, size: int) -> bytes:
        """Memory as it is now. Raises GdbheapError."""
        ...


class Writer(Caller, Protocol):
    """A caller that can also write."""

    def write(self, address: int, data: bytes) -> None:
        """Change memory of the process. Raises GdbheapError."""
        ...


@dataclass(frozen=True)
class Libc:
    """The process's C library, by the file whose build-id is the one in memory."""

    loaded: LoadedObject
    target: Target
    purpose: Purpose

    def address(self, name: str) -> int:
        """Where a function or variable is. Raises GdbheapError."""
        found = self.loaded.symbol(name)
        if found is None:
            raise self.purpose.error(f"{named(self.loaded.path)} has no {name}")
        return found

    def has(self, name: str) -> bool:
        """Whether ``name`` is there."""
        return self.loaded.symbol(name) is not None


class Calls(Protocol):
    """How functions of a stopped process are called: by gdbheap itself on this machine, by gdb on a server."""

    def call_to_end(self, heap: Heap, purpose: Purpose, seccomp: bool, *arguments: int) -> int:
        """Call the function of ``purpose``, which must not be left in its middle, after the proof that it can neither
        hang nor do harm; its result as a signed 64-bit number. ``seccomp``: also where a seccomp filter may refuse the
        call. Raises GdbheapError."""
        ...

    def stats_text(self, heap: Heap, seccomp: bool) -> str:
        """What malloc_stats() prints, which appears nowhere else. Raises GdbheapError."""
        ...

    def again(self) -> Target:
        """The process as it is after a call."""
        ...


def mutexes(heap: Heap) -> list[int]:
    """The addresses of the arenas, whose first word is the mutex of each."""
    return [arena.address for arena in heap.allocator(GlibcAllocator).malloc.arenas]


def find_libc(target: Target, purpose: Purpose = STATS) -> Libc:
    """The C library that holds the function. Raises GdbheapError when no file here is the same as the process's."""
    for loaded in target.objects:
        if loaded.exported(purpose.function) and loaded.exported("gnu_get_libc_version"):
            return Libc(loaded, target, purpose)
    raise purpose.error(
        f"no file here has the build-id of the process's C library, so that {purpose.function}() is not found"
    )


def prove_safe(libc: Libc, arenas: Sequence[int], caller: Caller) -> None:
    """Raise GdbheapError, naming the thread and the reason, unless the call cannot hang.

    ``arenas``: their addresses."""
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
    """Whether a stack broke off where malloc may be further out: before it left the C library, as malloc calls nothing
    outside of that and the kernel, or in what may be a signal handler that interrupted malloc."""
    return not stack.counters or stack.interrupted or libc.loaded.contains(stack.counters[-1])


@contextlib.contextmanager
def errno_kept(libc: Libc, caller: Writer) -> Iterator[None]:
    """A block that leaves errno as it is: the thread may be between a failed system call and its look at errno."""
    with bytes_kept(caller, caller.call(libc.address("__errno_location")), 4):
        yield


@contextlib.contextmanager
def bytes_kept(caller: Writer, address: int, size: int) -> Iterator[None]:
    """A block after which these bytes are as they were."""
    before = caller.read(address, size)
    try:
        yield
    finally:
        if caller.read(address, size) != before:
            caller.write(address, before)
