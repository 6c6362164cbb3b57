"""Call a function of malloc in a live process, after the proof that the call cannot hang.

These conditions must hold before the call:

- Every thread must be outside malloc. While the process has one thread, malloc takes no lock, so the call would read or
change lists that are half changed. With more threads, a lock that a thread holds would never be released, because only
the calling thread runs.

- Every arena's mutex must be 0, because malloc_stats() and malloc_trim() lock one arena after another (glibc
malloc/malloc.c, ``__malloc_stats``, ``__malloc_trim``).

This module restores ``errno``. The caller restores the registers: ``native_caller`` on this machine, gdb on a server.
This module does not import gdb."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.glibc.mutation import malloc_range
from gdbheap.dataclass import dataclass
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
    "CallPurpose",
    "ProgramCounters",
    "Writer",
    "bytes_kept",
    "errno_kept",
    "find_libc",
    "mutexes",
    "prove_safe",
]


Bytes = tuple[int, bytes]
"""An address in the process, and the bytes to restore there."""
FREE_MUTEX = bytes(4)
RUN_ON = "let the process run on and try again"
IN_HANDLER = (
    "try again when the handler has returned; until then, this call could block every other thread that calls malloc"
)


@dataclass(frozen=True)
class CallPurpose:
    """The purpose of a call: a command, and the function that it calls.

    ``instead``: the advice if the function may not be called; ``limit``: the most seconds that the call may take.
    """

    command: str
    function: str
    instead: str
    limit: float

    def error(self, reason: str) -> GdbheapError:
        """Return the error for a function that cannot be called in this process."""
        return GdbheapError(f"{self.command}: {reason}: {self.instead}")

    def refusal(self, reason: str, remedy: str = RUN_ON) -> GdbheapError:
        """Return the error for a function that cannot be called at this moment."""
        return GdbheapError(f"{self.command}: gdbheap did not call {self.function}(), because {reason}: {remedy}")


# --max-stop limits these times further. When the time is over, malloc_stats() is undone, but malloc_trim() is finished
# by the process itself.
STATS = CallPurpose("heap stats", "malloc_stats", "use 'heap arenas', which makes no call", 5.0)
TRIM = CallPurpose("heap trim", "malloc_trim", "'heap trim' without --yes predicts what the call would free", 20.0)


@dataclass(frozen=True)
class ProgramCounters:
    """The program counters of one thread, innermost first.

    ``broken``: why the stack could not be followed to its end, "" if it was; ``interrupted``: there may be more frames,
    beyond a signal handler's frame or on another stack."""

    name: str
    counters: list[int]
    broken: str
    interrupted: bool = False


class Caller(Protocol):
    """The operations on a stopped process that a call needs."""

    def stacks(self) -> list[ProgramCounters]:
        """Return the program counters in the frames of each thread's stack."""
        ...

    def call(self, function: int, *arguments: int) -> int:
        """Call the function at the address ``function`` with integer arguments; return its result as a signed 64-bit
        number.

        Raises GdbheapError.
        """
        ...

    def read(self, address: int, size: int) -> bytes:
        """Return the current bytes of the process's memory. Raises GdbheapError."""
        ...


class Writer(Caller, Protocol):
    """A caller that can also write to the process's memory."""

    def write(self, address: int, data: bytes) -> None:
        """Write to the process's memory. Raises GdbheapError."""
        ...


@dataclass(frozen=True)
class Libc:
    """The process's C library, as read from a local file with the same build-id."""

    loaded: LoadedObject
    target: Target
    purpose: CallPurpose

    def address(self, name: str) -> int:
        """Return the address of a function or variable. Raises GdbheapError if there is none."""
        found = self.loaded.symbol(name)
        if found is None:
            raise self.purpose.error(f"{named(self.loaded.path)} has no {name}")
        return found

    def has(self, name: str) -> bool:
        """Return whether the library has a symbol with this name."""
        return self.loaded.symbol(name) is not None


class Calls(Protocol):
    """Calls functions in a stopped process. gdbheap makes the call on this machine; gdb makes it on a gdbserver."""

    def call_to_end(self, heap: Heap, purpose: CallPurpose, seccomp: bool, *arguments: int) -> int:
        """Call the function of ``purpose``, after the proof that the call can neither hang nor do harm. Return its
        result as a signed 64-bit number.

        The call must not be abandoned halfway. ``seccomp``: make the call even if a seccomp filter may refuse it.
        Raises GdbheapError."""
        ...

    def stats_text(self, heap: Heap, seccomp: bool) -> str:
        """Return the text that malloc_stats() prints, but keep the process from printing it. Raises GdbheapError."""
        ...

    def again(self) -> Target:
        """Return a new target with the state of the process after a call."""
        ...


def mutexes(heap: Heap) -> list[int]:
    """Return the addresses of the arenas' mutexes. They are also the addresses of the arenas, which begin with their
    mutex."""
    return [arena.address for arena in heap.allocator(GlibcAllocator).malloc.arenas]


def find_libc(target: Target, purpose: CallPurpose = STATS) -> Libc:
    """Return the C library that contains the function of ``purpose``. Raises GdbheapError if no local file has the
    build-id of the process's C library."""
    for loaded in target.objects:
        if loaded.exported(purpose.function) and loaded.exported("gnu_get_libc_version"):
            return Libc(loaded, target, purpose)
    raise purpose.error(
        f"no file here has the build-id of the process's C library, so {purpose.function}() cannot be found"
    )


def prove_safe(libc: Libc, arenas: Sequence[int], caller: Caller) -> None:
    """Raise GdbheapError, with the thread and the reason, unless the call cannot hang. ``arenas``: the arenas'
    addresses."""
    _check_threads(libc, caller.stacks())
    for index, address in enumerate(arenas):
        if caller.read(address, 4) != FREE_MUTEX:
            raise libc.purpose.refusal(f"the mutex of arena {index} at {address:#x} is held")


def _check_threads(libc: Libc, stacks: Sequence[ProgramCounters]) -> None:
    place = malloc_range(libc.loaded)
    if place is None:
        raise libc.purpose.error(f"{named(libc.loaded.path)} has no malloc")
    start, end = place
    for stack in stacks:
        inside = (at for at, counter in enumerate(stack.counters) if start <= counter < end or start < counter <= end)
        first = next(inside, None)
        if first is not None:
            # malloc calls only functions of the C library and the kernel.
            if not all(libc.loaded.contains(counter) for counter in stack.counters[:first]):
                reason = f"thread {stack.name} runs a signal handler that interrupted malloc"
                raise libc.purpose.refusal(reason, IN_HANDLER)
            raise libc.purpose.refusal(f"thread {stack.name} is inside malloc")
        if stack.broken and _leaves_unknown(libc, stack):
            reason = f"thread {stack.name} may be inside malloc (its stack ends early: {one_line(stack.broken)})"
            raise libc.purpose.refusal(reason)


def _leaves_unknown(libc: Libc, stack: ProgramCounters) -> bool:
    """Return whether malloc may be on the part of a stack that could not be followed.

    malloc calls only functions of the C library and the kernel. So malloc may be there if the known part ends inside
    the C library. malloc may also be there if the known part may end in a signal handler that interrupted malloc.
    """
    return not stack.counters or stack.interrupted or libc.loaded.contains(stack.counters[-1])


@contextlib.contextmanager
def errno_kept(libc: Libc, caller: Writer) -> Iterator[None]:
    """Restore errno at the end of the block. The thread may be between a failed system call and its check of errno."""
    with bytes_kept(caller, caller.call(libc.address("__errno_location")), 4):
        yield


@contextlib.contextmanager
def bytes_kept(caller: Writer, address: int, size: int) -> Iterator[None]:
    """Restore the ``size`` bytes at ``address`` at the end of the block."""
    before = caller.read(address, size)
    try:
        yield
    finally:
        if caller.read(address, size) != before:
            caller.write(address, before)
