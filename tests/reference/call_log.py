"""A slow, plain reader of recorded calls, from docs/calls.md."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

HEADER, STAGE = 16 << 10, 256 << 10
WAITING, WRITTEN, WAITING_AT, WAITING_WORDS = 10, 11, 1 << 10, 5
MALLOC, FREE, REALLOC, CALLOC, MEMALIGN, SWITCH, OTHER = range(1, 8)
USABLE, THREAD, END, TIME, MMAP, MUNMAP, MREMAP, MALLOPT, TRIM, FORK = range(1, 11)
TICK = 18
STACK, CODE, LOADED = PARTS = range(11, 14)
CUT, TORN, OF_PYTHON = 1, 2, 4
NUMBERS = {USABLE: 1, THREAD: 2, END: 0, TIME: 1, MMAP: 4, MUNMAP: 2, MREMAP: 4, MALLOPT: 2, TRIM: 1, FORK: 1, TICK: 1}
PYTHON = PYTHON_MALLOC, PYTHON_CALLOC, PYTHON_REALLOC, PYTHON_FREE = (14, 15, 16, 17)
# Kinds of waiting calls in the header.
KINDS = (MALLOC, CALLOC, REALLOC, MEMALIGN, FREE)


@dataclass(frozen=True)
class Call:
    """A call of the allocator; ``old`` is realloc's block or the alignment, ``result`` the block of free too.

    ``time``: nanoseconds, the last time in the log.
    """

    tid: int
    kind: int
    size: int
    old: int
    result: int
    usable: int
    time: int = 0


class Stage:
    """The events of one stage."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place, self.last, self.last_of_python = data, 0, 0, 0

    def number(self) -> int:
        """Read a number: seven bits a byte, the lowest first."""
        value = shift = 0
        while True:
            byte = self.data[self.place]
            self.place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def address(self) -> int:
        """Read an address: 0, an address as it is, or a distance in words of 8 bytes."""
        value = self.number()
        if value == 0:
            return 0
        if value == 1:
            self.last = self.number()
        else:
            value = (value >> 1) - 1
            self.last = (self.last + 8 * (value >> 1 if value & 1 == 0 else -(value >> 1) - 1)) % (1 << 64)
        return self.last

    def python(self, low: int) -> tuple[int, int, int]:
        """Return (size, old block, block) of a call of Python's allocator. Addresses are distances from the last
        address of such a call.
        """
        self.last, others = self.last_of_python, self.last
        size = 0 if low == PYTHON_FREE else self.number()
        old = self.address() if low == PYTHON_REALLOC else 0
        result = self.address()
        self.last, self.last_of_python = others, self.last
        return size, old, result

    def size(self, low: int) -> int:
        """Read a size, in the first byte or after it."""
        return 8 * low if low else self.number()


@dataclass(frozen=True)
class Recorded:
    """The stack of an allocating call, outermost first: addresses of C's frames; for Python's the code object's
    address, the offset of the instruction, and whether the frame is its evaluator's outermost."""

    flags: int
    native: list[int]
    python: list[tuple[int, int, bool]]
    size: int
    result: int


def stacks_of(data: bytes) -> Iterator[Recorded | tuple[int, bytes]]:
    """Yield the stacks of a recorder's file with their calls, and (CODE or LOADED, content) between them."""
    words = struct.unpack_from("<12Q", data)
    for number in range(words[5]):
        stage = stage_of(data, number)
        native: list[int] = []
        python: list[tuple[int, int, bool]] = []
        flags: int | None = None
        while stage.place < len(stage.data) and (first := stage.data[stage.place]):
            stage.place += 1
            kind, low = first >> 5, first & 31
            if kind == SWITCH:
                low or stage.number()
            elif kind == OTHER and low in PARTS:
                length = stage.number()
                content = Stage(stage.data[stage.place : stage.place + length])
                stage.place += length
                if low == STACK:
                    flags = content.number()
                    native = native[: content.number()]
                    last = 0
                    for _ in range(content.number()):
                        last = (last + signed(content.number())) % (1 << 64)
                        native.append(last)
                    python = python[: content.number()]
                    last = 0
                    for _ in range(content.number()):
                        last = (last + signed(content.number())) % (1 << 64)
                        word = signed(content.number())
                        python.append((last, word >> 1, bool(word & 1)))
                else:
                    yield low, content.data
            elif kind == OTHER and low in PYTHON:
                stage.python(low)
            elif kind == OTHER:
                for _ in range(NUMBERS[low]):
                    stage.number()
            else:
                size = 0 if kind == FREE else stage.size(low)
                if kind == MEMALIGN:
                    stage.number()
                elif kind == REALLOC:
                    stage.address()
                result = stage.address()
                if flags is not None and kind != FREE and result:
                    yield Recorded(flags, list(native), list(python), size, result)
                    flags = None


def stage_of(data: bytes, number: int) -> Stage:
    """Return a stage of a recorder's file: the last one is in a slot, earlier ones are after both slots."""
    (count,) = struct.unpack_from("<Q", data, 5 * 8)
    start = HEADER + (number % 2 if number == count - 1 else 2 + number) * STAGE
    return Stage(data[start : start + STAGE])


def signed(value: int) -> int:
    """Convert an unsigned number to the signed one that it stands for: 0, 1, 2, 3, 4… stand for 0, -1, 1, -2, 2…"""
    return value >> 1 if value & 1 == 0 else -(value >> 1) - 1


def usual(size: int) -> int:
    """Return the usable bytes of most blocks of glibc's."""
    return max((size + 8 + 15) & ~15, 32) - 8


def calls_of(data: bytes, python: bool = False) -> Iterator[Call]:
    """Yield the calls of a recorder's file; ``python``: also those of Python's allocator, whose kinds are the
    numbers of their events."""
    words = struct.unpack_from("<12Q", data)
    tids: dict[int, int] = {}
    thread, time = 0, 0
    # A number of usable bytes belongs to the last allocated block.
    given: Call | None = None
    for number in range(words[5]):
        stage = stage_of(data, number)
        in_stage = 0
        while stage.place < len(stage.data) and (first := stage.data[stage.place]):
            stage.place += 1
            kind, low = first >> 5, first & 31
            if kind == SWITCH:
                thread = low or stage.number()
            elif kind == OTHER and low in PYTHON:
                size, old, result = stage.python(low)
                if python:
                    yield Call(tids[thread], low, size, old, result, size)
            elif kind == OTHER and low in PARTS:
                length = stage.number()
                stage.place += length
            elif kind == OTHER:
                values = [stage.number() for _ in range(NUMBERS[low])]
                if low == USABLE and given is not None:
                    given = replace(given, usable=values[0])
                elif low == THREAD:
                    thread, tids[thread] = values[0], values[1]
                elif low == TIME:
                    in_stage += values[0]
                    time = in_stage
            else:
                size = 0 if kind == FREE else stage.size(low)
                old = stage.number() if kind == MEMALIGN else stage.address() if kind == REALLOC else 0
                if given is not None:
                    yield given
                given = Call(tids[thread], kind, size, old, stage.address(), usual(size), time)
    if given is not None:
        yield given
    for number in range(words[WRITTEN], words[WAITING]):
        what = struct.unpack_from(f"<{WAITING_WORDS}Q", data, WAITING_AT + 8 * WAITING_WORDS * number)
        if 0 < what[0] <= len(KINDS):
            usable = what[4] - 1 if what[4] else usual(what[1])
            yield Call(tids[thread], KINDS[what[0] - 1], what[1], what[2], what[3], usable, time)


def files_of(folder: Path) -> dict[tuple[int, int], bytes]:
    """Return each recorder's file by the process id and its start."""
    found = {}
    for path in folder.glob("*.calls"):
        data = path.read_bytes()
        if len(data) < HEADER:
            # Killed before its first call was made.
            continue
        words = struct.unpack_from("<12Q", data)
        found[words[3], words[4]] = data
    return found
