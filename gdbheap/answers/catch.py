"""Calls of malloc's functions that a user asked for, as they are made, with the stacks that made them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from gdbheap.answers.following_growth import THREAD_POINTER
from gdbheap.answers.growth import Cost
from gdbheap.answers.stacks import StackFrame, Stacks
from gdbheap.errors import Fault
from gdbheap.target.code import Condition
from gdbheap.target.following import Following, Hit, LocalProcess
from gdbheap.target.machine import Machine
from gdbheap.target.unwind_tables import DWARF

__all__ = ["FUNCTIONS", "Catch", "Caught", "Wanted", "catch", "conditions"]

# struct user_regs_struct: the first two arguments of a function.
FIRST, SECOND = 14, 13
SIZE_OF = {"malloc": "first", "calloc": "product", "realloc": "second", "free": "chunk size"}
FUNCTIONS = tuple(SIZE_OF)
# DEFAULT_MMAP_THRESHOLD_MIN: malloc maps nothing smaller, unless it is told to.
MIN_MAPPED = 128 << 10


@dataclass(frozen=True)
class Caught:
    """A call: when (seconds after the beginning), by which thread, the block that it is about (None of malloc and
    calloc), the size that was asked for (of free the size of its chunk; None where it is no block of glibc's), and the
    frames, the outermost first."""

    seconds: float
    tid: int
    function: str
    address: int | None
    size: int | None
    frames: list[StackFrame]


@dataclass(frozen=True)
class Catch:
    """The calls that were caught, in their order, in so many ``seconds``; why it ended ("asked", "gone" or "exec"), and
    what it cost the target."""

    pid: int
    seconds: float
    calls: list[Caught]
    end: str
    cost: Cost


@dataclass(frozen=True)
class Wanted:
    """Which calls: of ``function``, of exactly ``size`` bytes or from ``least`` to ``most``, about the block at
    ``address``; None: any. ``count`` calls at most, for ``duration`` seconds at most, until ``is_told`` says so."""

    function: str
    size: int | None = None
    least: int | None = None
    most: int | None = None
    address: int | None = None
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
    tests = conditions(process.machine, wanted)
    stacks = Stacks(process.pid, process.machine)
    with process.functions([wanted.function], tests, wanted.seccomp) as following:
        began = time.monotonic()
        calls: list[Caught] = []
        begun()
        with suppress(KeyboardInterrupt):
            _run(following, process, wanted, stacks, calls, began)
        seconds = time.monotonic() - began
        follower = following.follower
        if following.stay is not None and calls and len(calls) == wanted.count:
            following.stay()
        follower.end()
        cost = Cost(follower.hits, follower.stood, follower.held)
    return Catch(process.pid, seconds, calls, follower.finish or "asked", cost)


def _run(
    following: Following, process: LocalProcess, wanted: Wanted, stacks: Stacks, calls: list[Caught], began: float
) -> None:
    end = None if wanted.duration is None else began + wanted.duration
    while (wanted.count is None or len(calls) < wanted.count) and not wanted.is_told():
        left = following.longest_wait
        left = left if end is None else min(left, end - time.monotonic())
        if left <= 0:
            return
        hit = following.follower.next(left)
        if hit is not None:
            calls.append(_caught(process, stacks, hit, wanted.function, time.monotonic() - began))
        elif following.follower.finish:
            return


def _caught(process: LocalProcess, stacks: Stacks, hit: Hit, function: str, seconds: float) -> Caught:
    """The call that a thread is about to make."""
    registers = [hit.registers[place] for place in DWARF]
    frames = stacks.name(stacks.capture(registers, hit.registers[THREAD_POINTER]))
    first, second = hit.registers[FIRST], hit.registers[SECOND]
    sizes = {"malloc": first, "calloc": first * second, "realloc": second}
    address = first if function in ("free", "realloc") else None
    size = sizes[function] if function in sizes else _size_of_chunk(process, first)
    return Caught(seconds, hit.tid, function, address, size, list(frames))


def _size_of_chunk(process: LocalProcess, address: int) -> int | None:
    """By the word before the block; None for null, and where it cannot be read."""
    word = process.machine.word
    with suppress(Fault, OverflowError):
        return process.running.space.word(address - word) & -word if address else None
    return None
