"""A slow, plain reader of recorded calls, from docs/calls.md."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HEADER, STAGE = 16 << 10, 256 << 10
WAITING, WRITTEN, WAITING_AT, WAITING_WORDS = 10, 11, 1 << 10, 5
MALLOC, FREE, REALLOC, CALLOC, MEMALIGN, SWITCH, OTHER = range(1, 8)
USABLE, THREAD, END, TIME, MMAP, MUNMAP, MREMAP, MALLOPT, TRIM, FORK = range(1, 11)
NUMBERS = {USABLE: 1, THREAD: 2, END: 0, TIME: 1, MMAP: 4, MUNMAP: 2, MREMAP: 4, MALLOPT: 2, TRIM: 1, FORK: 1}
# Kinds of calls in the header's waiting ones.
KINDS = (MALLOC, CALLOC, REALLOC, MEMALIGN, FREE)


@dataclass(frozen=True)
class Call:
    """A call of the allocator; ``old`` is realloc's block or the alignment, ``result`` the block of free too. ``time``:
    nanoseconds, as the log said them last."""

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
        self.data, self.place, self.last = data, 0, 0

    def number(self) -> int:
        """Seven bits a byte, the lowest first."""
        value = shift = 0
        while True:
            byte = self.data[self.place]
            self.place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def address(self) -> int:
        """0, one as it is, or a distance in words of 8 bytes."""
        value = self.number()
        if value == 0:
            return 0
        if value == 1:
            self.last = self.number()
        else:
            value = (value >> 1) - 1
            self.last = (self.last + 8 * (value >> 1 if value & 1 == 0 else -(value >> 1) - 1)) % (1 << 64)
        return self.last

    def size(self, low: int) -> int:
        """In the first byte, or behind it."""
        return 8 * low if low else self.number()


def usual(size: int) -> int:
    """Usable bytes of most blocks of glibc's."""
    return max((size + 8 + 15) & ~15, 32) - 8


def calls_of(data: bytes) -> Iterator[Call]:
    """The calls of a recorder's file."""
    words = struct.unpack_from("<12Q", data)
    tids: dict[int, int] = {}
    thread, usable, time = 0, -1, 0
    for number in range(words[5]):
        stage = Stage(data[HEADER + number * STAGE : HEADER + (number + 1) * STAGE])
        in_stage = 0
        while stage.place < len(stage.data) and (first := stage.data[stage.place]):
            stage.place += 1
            kind, low = first >> 5, first & 31
            if kind == SWITCH:
                thread = low or stage.number()
            elif kind == OTHER:
                values = [stage.number() for _ in range(NUMBERS[low])]
                if low == USABLE:
                    usable = values[0]
                elif low == THREAD:
                    thread, tids[thread] = values[0], values[1]
                elif low == TIME:
                    in_stage += values[0]
                    time = in_stage
            else:
                size = 0 if kind == FREE else stage.size(low)
                old = stage.number() if kind == MEMALIGN else stage.address() if kind == REALLOC else 0
                yield Call(tids[thread], kind, size, old, stage.address(), usual(size) if usable < 0 else usable, time)
                usable = -1
    for number in range(words[WRITTEN], words[WAITING]):
        what = struct.unpack_from(f"<{WAITING_WORDS}Q", data, WAITING_AT + 8 * WAITING_WORDS * number)
        if 0 < what[0] <= len(KINDS):
            usable = what[4] - 1 if what[4] else usual(what[1])
            yield Call(tids[thread], KINDS[what[0] - 1], what[1], what[2], what[3], usable, time)


def files_of(folder: Path) -> dict[tuple[int, int], bytes]:
    """Each recorder's file by the process's number and when it began."""
    found = {}
    for path in folder.glob("*.calls"):
        data = path.read_bytes()
        if len(data) < HEADER:
            # Killed before its first call was made.
            continue
        words = struct.unpack_from("<12Q", data)
        found[words[3], words[4]] = data
    return found
