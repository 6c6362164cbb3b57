"""Calls of malloc's functions that a user asked for, as they are made, with the stacks that made them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from gdbheap.errors import Fault
from gdbheap.following.growth import GROWS, Cost, Memory
from gdbheap.machines.machine import Machine
from gdbheap.stacks import NATIVE, StackFrame, Stacks
from gdbheap.targets.code_places import Condition
from gdbheap.targets.following import LocalProcess
from gdbheap.targets.hits import Following, Hit
from gdbheap.targets.mappings import parse_maps

__all__ = ["FUNCTIONS", "Catch", "Caught", "Wanted", "catch", "conditions"]

SIZE_OF = {"malloc": "first", "calloc": "product", "realloc": "second", "free": "chunk size"}
FUNCTIONS = tuple(SIZE_OF)
# DEFAULT_MMAP_THRESHOLD_MIN: malloc maps nothing smaller, unless it is told to.
MIN_MAPPED = 128 << 10


@dataclass(frozen=True)
class Caught:
    """A call. Where ``grown`` was asked for, only that is known."""

    seconds: float
    tid: int
    function: str
    address: int | None
    asked: int | None
    grown: int | None
    frames: list[StackFrame]


@dataclass(frozen=True)
class Catch:
    """The calls that were caught, in their order."""

    pid: int
    seconds: float
    rows: list[Caught]
    why_ended: str
    cost: Cost


@dataclass(frozen=True)
class Wanted:
    """Which calls: of ``function``, of exactly ``size`` bytes or from ``least`` to ``most``, about the block at
    ``address``; None: any. ``grows``: those alone that get memory from the kernel. ``count`` calls at most, for
    ``duration`` seconds at most, until ``is_told`` says so."""

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


def conditions(machine: Machine, wanted: Wanted) -> list[Condition]:
    """What is compared at the function's beginning. A size that free is asked about is that of a request: its chunk's
    is compared (glibc malloc/malloc.c, request2size)."""
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
    """What is left over is part of a chunk where it is too small for one of its own; a mapped one has whole pages."""
    usual = _chunk_size(machine, size) + 2 * machine.word
    return usual if size < MIN_MAPPED else max(usual, machine.page_up(size + 2 * machine.word))


def catch(process: LocalProcess, wanted: Wanted, begun: Callable[[], None]) -> Catch:
    """The calls that are made from now on. ``begun`` is called once they are seen. Raises GdbheapError; an interrupt
    ends it with what there is."""
    stacks = Stacks(process.folder, process.machine)
    with _seen(process, wanted) as following:
        catcher = (_Grower if wanted.grows else _Caller)(process, wanted, stacks, following)
        begun()
        with suppress(KeyboardInterrupt):
            _run(following, wanted, catcher)
        seconds = time.monotonic() - catcher.began
        follower = following.follower
        if following.stay is not None and catcher.calls and len(catcher.calls) == wanted.count:
            following.stay()
        follower.end()
        cost = Cost(follower.hits, follower.stood, follower.held)
        process.unread += stacks.unread
    return Catch(process.pid, seconds, catcher.calls, follower.finish or "asked", cost)


def _seen(process: LocalProcess, wanted: Wanted) -> AbstractContextManager[Following]:
    if wanted.grows:
        return process.calls(list(process.machine.system_calls.of_memory), True, wanted.seccomp)
    return process.functions([wanted.function], conditions(process.machine, wanted), wanted.seccomp)


def _run(following: Following, wanted: Wanted, catcher: _Catcher) -> None:
    def is_over() -> bool:
        return wanted.is_told() or (wanted.count is not None and len(catcher.calls) >= wanted.count)

    for hit in following.seen(wanted.duration, is_over):
        catcher.add(hit)


class _Catcher:
    """Keeps the calls that are wanted."""

    def __init__(self, process: LocalProcess, wanted: Wanted, stacks: Stacks, following: Following) -> None:
        self.process, self.wanted, self._stacks, self._following = process, wanted, stacks, following
        self.began = time.monotonic()
        self.calls: list[Caught] = []

    def add(self, hit: Hit) -> None:
        """A thread was seen. A subclass says whether its call is wanted."""
        raise NotImplementedError


class _Caller(_Catcher):
    """Calls of a function, of which a thread makes one."""

    def add(self, hit: Hit) -> None:
        """All that are seen are wanted: the process compares by itself."""
        function = self.wanted.function
        first, second = (hit.registers[place] for place in self.process.machine.system_calls.arguments[:2])
        sizes = {"malloc": first, "calloc": first * second, "realloc": second}
        address = first if function in ("free", "realloc") else None
        size = sizes[function] if function in sizes else _size_of_chunk(self.process, first)
        seconds = time.monotonic() - self.began
        self.calls.append(Caught(seconds, hit.tid, function, address, size, None, self._stacks.frames(hit.registers)))


class _Grower(_Catcher):
    """Calls of a function in which malloc gets memory from the kernel: seen behind its system calls."""

    def __init__(self, process: LocalProcess, wanted: Wanted, stacks: Stacks, following: Following) -> None:
        super().__init__(process, wanted, stacks, following)
        self._memory = Memory(process.machine, parse_maps(following.follower.maps[0]))

    def add(self, hit: Hit) -> None:
        """It is wanted if memory grew, and the function is among the frames."""
        number = self._following.place(hit)
        if not isinstance(number, int):
            return
        call = self._memory.read(number, hit.registers)
        if call.id not in GROWS:
            return
        frames = self._stacks.frames(hit.registers)
        if any(frame.kind == NATIVE and frame.name == self.wanted.function for frame in frames):
            seconds = time.monotonic() - self.began
            self.calls.append(Caught(seconds, hit.tid, self.wanted.function, None, None, call.bytes, frames))


def _size_of_chunk(process: LocalProcess, address: int) -> int | None:
    """By the word before the block; None for null, and where it cannot be read."""
    word = process.machine.word
    with suppress(Fault, OverflowError):
        return process.running.space.word(address - word) & -word if address else None
    return None
