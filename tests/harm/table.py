"""The table that a target or its client keeps in a shared mapped file: it is read without a stop.

A line is ``char name[32]; uint64_t rounds, interrupted, wrong, longest, error, lasted`` (tests/programs/checking.c):
how often it was done, ended with EINTR or went wrong, the longest time of one in nanoseconds, and for the last call
with a time limit that went wrong its errno and its duration.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import astuple, dataclass, replace
from pathlib import Path

LINE = struct.Struct("<32s6Q")
LINES = 64
LONGEST = 56


@dataclass(frozen=True)
class Line:
    """One line at the time of its reading."""

    rounds: int
    interrupted: int
    wrong: int
    longest: int
    error: int = 0
    lasted: int = 0


class Table:
    """A file of lines, for reader and writer; the writer is one process."""

    def __init__(self, path: Path) -> None:
        """Map the file, which is made if there is none."""
        with path.open("a+b") as file:
            if not path.stat().st_size:
                file.truncate(LINES * LINE.size)
            self._bytes = mmap.mmap(file.fileno(), LINES * LINE.size)

    def lines(self) -> dict[str, Line]:
        """Return the lines that have a name."""
        rows = (LINE.unpack_from(self._bytes, number * LINE.size) for number in range(LINES))
        return {row[0].rstrip(b"\0").decode(): Line(*row[1:]) for row in rows if row[0][0]}

    def put(self, number: int, name: str, line: Line) -> None:
        """Write a line. ``line.longest`` is the longest stop of this round; the file keeps the longest
        since the reset.
        """
        kept = struct.unpack_from("<Q", self._bytes, number * LINE.size + LONGEST)[0]
        line = replace(line, longest=max(line.longest, kept))
        # Not pack_into(), which writes zeros first: others read at any moment.
        self._bytes[number * LINE.size : (number + 1) * LINE.size] = LINE.pack(name.encode(), *astuple(line))

    def reset_longest(self) -> None:
        """Reset the longest times."""
        for number in range(LINES):
            struct.pack_into("<Q", self._bytes, number * LINE.size + LONGEST, 0)
