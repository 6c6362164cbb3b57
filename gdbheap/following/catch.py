"""Catch chosen calls of malloc, calloc, realloc or free as they happen, with their stacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.following.growth import GROWS, Cost, ReservedMemory
from gdbheap.machines.machine import Machine
from gdbheap.stack_frames import StackFrame
from gdbheap.stacks import CapturedStack, Stacks
from gdbheap.targets.code_places import Condition
from gdbheap.targets.following import LocalProcess
from gdbheap.targets.hits import CaughtProcess, Hit
from gdbheap.targets.mappings import parse_maps

__all__ = ["FUNCTIONS", "Catch", "Caught", "CatchRequest", "catch", "conditions"]

SIZE_OF = {"malloc": "first", "calloc": "product", "realloc": "second", "free": "chunk size"}
FUNCTIONS = tuple(SIZE_OF)
# DEFAULT_MMAP_THRESHOLD_MIN. By default, malloc gives no smaller block its own mapping.
MIN_MAPPED = 128 << 10


@dataclass(frozen=True)
class Caught:
    """A call that was caught.

    ``seconds``: the time since catching began.
    ``address``: the address of the block that was passed to the call, else None.
    ``asked``: the requested bytes; for free, the chunk's size.
    ``grown``: how many bytes malloc got from the kernel, if only such calls are caught (``CatchRequest.grows``).
    ``address`` and ``asked`` are then None.
    """

    seconds: float
    tid: int
    function: str
    address: int | None
    asked: int | None
    grown: int | None
    frames: list[StackFrame]


@dataclass(frozen=True)
class Catch:
    """The calls that were caught, in order of time, and how catching them delayed the process."""

    pid: int
    seconds: float
    rows: list[Caught]
    why_ended: str
    cost: Cost


@dataclass(frozen=True)
class CatchRequest:
    """The request to catch calls: which calls, and for how long.

    ``function``: the allocator's function to catch.
    ``size``, ``least``, ``most``: the exact, the smallest and the largest size in bytes; None means any.
    ``address``: the block that is passed to the call; None means any.
    ``grows``: catch only calls for which malloc gets memory from the kernel.
    ``count``: the number of calls after which catching ends; ``duration``: the seconds after which it ends.
    ``is_told``: a function; catching also ends once it returns True.
    ``seccomp``: catch calls even if the process has a seccomp filter.
    """

    function: str
    size: int | None = None
    least: int | None = None
    most: int | None = None
    address: int | None = None
    grows: bool = False
    count: int | None = 1
    duration: float | None = None
    seccomp: bool = False
    is_told: Callable[[], bool] = lambda: False


def conditions(machine: Machine, wanted: CatchRequest) -> list[Condition]:
    """Return the comparisons to make at the function's entry.

    free() has no size argument, so the size of its chunk is compared. Requested sizes are converted to chunk sizes for
    this comparison (glibc malloc/malloc.c, request2size)."""
    operand = SIZE_OF[wanted.function]
    least, most = (wanted.least, wanted.most) if wanted.size is None else (wanted.size, wanted.size)
    if wanted.function == "free":
        least = None if least is None else _chunk_size(machine, least)
        most = None if most is None else _largest_chunk(machine, most)
    tests = (("==", least),) if least is not None and least == most else ((">=", least), ("<=", most))
    found = [Condition(operand, test, value) for test, value in tests if value is not None]
    if wanted.address is not None:
        found.append(Condition("first", "==", wanted.address))
    return found


def _chunk_size(machine: Machine, size: int) -> int:
    word = machine.word
    return max(4 * word, (size + word + 2 * word - 1) // (2 * word) * (2 * word))


def _largest_chunk(machine: Machine, size: int) -> int:
    """Return the size of the largest chunk that malloc may use for a request of ``size`` bytes.

    A remainder that is too small for a chunk stays part of this chunk, and an mmapped chunk fills whole pages.
    """
    usual = _chunk_size(machine, size) + 2 * machine.word
    return usual if size < MIN_MAPPED else max(usual, machine.page_up(size + 2 * machine.word))


def catch(process: LocalProcess, wanted: CatchRequest, begun: Callable[[], None]) -> Catch:
    """Catch the wanted calls from now on and return them.

    ``begun`` is called once catching has started. Raises GdbheapError. An interrupt ends catching, and the calls caught
    so far are returned.
    """
    catcher = (_Grower if wanted.grows else _Caller)(process, wanted)
    with _seen(process, wanted) as following:
        catcher.begin(following)
        begun()
        with suppress(KeyboardInterrupt):
            _run(following, wanted, catcher)
        seconds = time.monotonic() - catcher.began
        follower = following.follower
        if following.stay is not None and catcher.calls and len(catcher.calls) == wanted.count:
            following.stay()
        follower.end()
        cost = Cost(follower.hits, follower.stood, follower.held)
    # No symbol table is decoded while a thread is stopped.
    calls = catcher.named()
    process.unread += catcher.stacks.unread
    return Catch(process.pid, seconds, calls, follower.finish or "asked", cost)


def _seen(process: LocalProcess, wanted: CatchRequest) -> AbstractContextManager[CaughtProcess]:
    if wanted.grows:
        return process.calls(list(process.machine.system_calls.of_memory), True, wanted.seccomp)
    return process.functions([wanted.function], conditions(process.machine, wanted), wanted.seccomp)


def _run(following: CaughtProcess, wanted: CatchRequest, catcher: _Catcher) -> None:
    def is_over() -> bool:
        return wanted.is_told() or (wanted.count is not None and len(catcher.calls) >= wanted.count)

    for hit in following.seen(wanted.duration, is_over):
        catcher.add(hit)


class _Catcher:
    """Collects the calls that match the request, and their stacks. The names of the frames are read at the end
    (``named``).
    """

    def __init__(self, process: LocalProcess, wanted: CatchRequest) -> None:
        self.process, self.wanted = process, wanted
        self.stacks = Stacks(process.folder, process.machine)
        self.began = time.monotonic()
        self.calls: list[tuple[Caught, CapturedStack]] = []

    def begin(self, following: CaughtProcess) -> None:
        """Store the time at which catching began."""
        self.began = time.monotonic()

    def add(self, hit: Hit) -> None:
        """Handle a caught thread, which is stopped meanwhile. A subclass decides whether its call is wanted."""
        raise NotImplementedError

    def named(self) -> list[Caught]:
        """Return the calls with the frames of their stacks."""
        names = {stack: list(self.stacks.name(stack)) for stack in dict.fromkeys(stack for _, stack in self.calls)}
        return [replace(call, frames=names[stack]) for call, stack in self.calls]


class _Caller(_Catcher):
    """Catches calls of the requested function at its entry."""

    def add(self, hit: Hit) -> None:
        """Add the call to the result. The conditions need no check: they were checked in the process."""
        function = self.wanted.function
        first, second = (hit.registers[place] for place in self.process.machine.system_calls.arguments[:2])
        sizes = {"malloc": first, "calloc": first * second, "realloc": second}
        address = first if function in ("free", "realloc") else None
        size = sizes[function] if function in sizes else _size_of_chunk(self.process, first)
        seconds = time.monotonic() - self.began
        caught = Caught(seconds, hit.tid, function, address, size, None, [])
        self.calls.append((caught, self.stacks.capture_registers(hit.registers)))


class _Grower(_Catcher):
    """Catches calls of the wanted function in which malloc gets memory from the kernel, at the return of the system
    call.
    """

    def __init__(self, process: LocalProcess, wanted: CatchRequest) -> None:
        super().__init__(process, wanted)
        # [start, end) of each function that has the wanted name now.
        self._functions = _extents(process, wanted.function)

    def begin(self, following: CaughtProcess) -> None:
        """Store the time at which catching began, and the mappings at that time."""
        super().begin(following)
        self._following = following
        self._memory = ReservedMemory(self.process.machine, parse_maps(following.follower.maps[0]))

    def add(self, hit: Hit) -> None:
        """Add the call to the result if memory grew and the wanted function is in the call's stack."""
        number = self._following.place(hit)
        if not isinstance(number, int):
            return
        call = self._memory.read(number, hit.registers)
        if call.id not in GROWS:
            return
        stack = self.stacks.capture_registers(hit.registers)
        places = {(place, start) for _, place, start in stack.places}
        if any(first <= place < end or first == start for place, start in places for first, end in self._functions):
            seconds = time.monotonic() - self.began
            self.calls.append((Caught(seconds, hit.tid, self.wanted.function, None, None, call.bytes, []), stack))


def _extents(process: LocalProcess, name: str) -> list[tuple[int, int]]:
    """Return [start, end) of each function with this name: the program's own function, and the functions that loaded
    objects export."""
    objects = process.running.objects
    named = (loaded.extent(name) for loaded in objects if loaded is objects[0] or loaded.exported(name))
    return [(start, start + size) for start, size in filter(None, named)]


def _size_of_chunk(process: LocalProcess, address: int) -> int | None:
    """Return a chunk's size from the word before its block; None for a null address or if it cannot be read."""
    word = process.machine.word
    with suppress(Fault, OverflowError):
        return process.running.space.word(address - word) & -word if address else None
    return None
