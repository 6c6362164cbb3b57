"""Programs that keep a table of the calls that they make (tests/programs/call_table.c), and logs of these calls."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reference import call_log
from reference.call_log import CALLOC, FREE, MALLOC, MEMALIGN, REALLOC, Call

from gdbheap.tracing.log import BY_LOCK
from gdbheap.tracing.recorder_files import ORDER
from support.programs import build
from support.recorded import recorder_environment

# The numbers of call_table.c.
KINDS = (MALLOC, CALLOC, REALLOC, MEMALIGN, FREE)
ENTRY, HEAD, ROOM = struct.Struct("<4Q"), struct.Struct("<3Q"), 4096
Made = tuple[int, int, int, int]


@dataclass(frozen=True)
class Row:
    """A thread's own table: (kind, size, old, result) of each of its calls."""

    pid: int
    tid: int
    calls: list[Made]


@dataclass(frozen=True)
class Table:
    """The arguments of the program, and the rows that it wrote."""

    threads: int
    calls: int
    forks: int
    path: Path

    def words(self, rng: random.Random) -> list[str]:
        """Return the command that writes the table."""
        numbers = (self.threads, self.calls, self.forks, rng.getrandbits(30))
        return [str(build("call_table")), *map(str, numbers), str(self.path)]

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the threads that have started."""
        data = self.path.read_bytes() if self.path.exists() else b""
        size = HEAD.size + (3 * self.calls + ROOM) * ENTRY.size
        for start in range(0, len(data), size):
            tid, pid, count = HEAD.unpack_from(data, start)
            entries = data[start + HEAD.size : start + HEAD.size + count * ENTRY.size]
            if tid:
                yield Row(pid, tid, [(KINDS[entry[0] - 1], *entry[1:]) for entry in ENTRY.iter_unpack(entries)])


def recorded(folder: Path, words: list[str], preload: str = "", order: str = BY_LOCK) -> subprocess.Popen[bytes]:
    """Start a program with the recorder alone, which leaves its files in the folder."""
    folder.mkdir()
    environment = {**os.environ, **recorder_environment(folder, preload), ORDER: order}
    return subprocess.Popen(words, env=environment, start_new_session=True)


def by_thread(folder: Path) -> dict[tuple[int, int], list[Call]]:
    """Return the calls of each (pid, tid), in their order."""
    found: dict[tuple[int, int], list[Call]] = {}
    for (pid, _began), data in sorted(call_log.files_of(folder).items()):
        for call in call_log.calls_of(data):
            found.setdefault((pid, call.tid), []).append(call)
    return found


def first_missing(row: Row, calls: list[Call]) -> int | None:
    """Return the index in a table of the first call that the log lacks. The log may also have calls that libc itself
    made.
    """
    rest = iter((call.kind, call.size, call.old, call.result) for call in calls)
    return next((place for place, made in enumerate(row.calls) if made not in rest), None)


def has_every_call(row: Row, calls: list[Call]) -> bool:
    """Return whether a log has every call in a table of a killed program. The table lists a free before the program
    makes it.
    """
    missing = first_missing(row, calls)
    return missing is None or (missing == len(row.calls) - 1 and row.calls[-1][0] == FREE)
