"""The log of recorded calls: a file of frames. A truncated log can be read up to its last complete frame
(docs/calls.md).
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import field
from typing import Any, BinaryIO

from gdbheap._native import Descriptor
from gdbheap.answers.accounting.records import from_json
from gdbheap.dataclass import dataclass
from gdbheap.documents import parsed
from gdbheap.errors import UsageError, one_line
from gdbheap.files import PRIVATE, NewFile, not_written, open_regular, open_to_append, open_to_read
from gdbheap.host.headroom import RoomLeft
from gdbheap.text import quoted

__all__ = [
    "BEYOND",
    "BY_LOCK",
    "BY_TIME",
    "CallLog",
    "Frames",
    "LogWriter",
    "ProcessCalls",
    "RecordedProcess",
    "is_call_log",
    "read_log",
]

MAGIC = b"gdbheap calls 1\n"
# A frame's header: its kind, the number of the process, and the size of the content in bytes.
FRAME = struct.Struct("<4sIQ")
PROCESS, STAGE, TIMED_STAGE, PROCESS_END, END = b"PROC", b"STAG", b"TIME", b"DONE", b"ENDS"
# Before a stage whose calls are ordered by time: the time of its first call, and its lane.
TIMES = struct.Struct("<QQ")
BY_LOCK, BY_TIME = "lock", "time"
MAX_DOCUMENT_BYTES = 1 << 20
MAX_PROCESSES = 1 << 20
# After this many stages the memory that is left is checked again. A stage takes some hundred bytes of memory.
FRAMES_AT_ONCE = 1 << 14
# Process ids are below the first number (the kernel's are at most 4,194,304), other numbers below the second.
BEYOND_PIDS, BEYOND = 1 << 31, 1 << 63


@dataclass(frozen=True)
class RecordedProcess:
    """A recorded process, as its recorder describes it.

    ``began``: when the process began, in nanoseconds since 1970.
    ``exe``, ``words``: its program and arguments.
    ``malloc``: the file of its allocator.
    ``environment``: the variables that affect the allocator.
    ``parent``: the pid and ``began`` of the process that forked it, and the number of the fork; None after an exec.
    ``order``: BY_LOCK: a lock serializes the recorded calls. BY_TIME: each thread records its own calls, which are
    ordered by the processor's clock.
    ``stacks``: the mean number of bytes between two recorded stacks. 1: each call has a stack; 0: none has.
    """

    pid: int
    began: int
    exe: str
    malloc: str
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    parent: tuple[int, int, int] | None = None
    order: str = BY_LOCK
    stacks: int = 0


Frames = list[tuple[int, int, int]]
"""(offset, bytes, time of the first call) of each stage; the time is 0 unless calls are ordered by time."""


@dataclass
class ProcessCalls:
    """The calls of one process in a log. A stage is a compressed series of calls.

    ``frames``: the places of the process's stages in the file ``held``.
    ``lanes``: how many stages each lane has, by the time when the lane began. If calls are ordered by time, each thread
    has a lane.
    ``lost``: the number of calls that were not written.
    ``ended``: whether no more stages follow.
    """

    who: RecordedProcess
    held: Descriptor
    frames: Frames = field(default_factory=list)
    lanes: dict[int, int] = field(default_factory=dict)
    lost: int = 0
    ended: bool = False

    @property
    def opened(self) -> str:
        """A path to the file that the frames were read from, which stays valid if the log is renamed or replaced."""
        return f"/proc/self/fd/{self.held.number}"


@dataclass
class CallLog:
    """A log of calls.

    ``held``: the descriptor of its file.
    ``whole``: whether the log is complete: its last record was read.
    ``status``: the command's exit status, None if unknown.
    ``size``: the offset in bytes at which the last complete frame ends.
    """

    path: str
    held: Descriptor
    processes: list[ProcessCalls]
    whole: bool = False
    status: int | None = None
    size: int = len(MAGIC)

    def chosen(self, pid: int | None, with_stacks: bool = False) -> ProcessCalls:
        """Return the process with this pid. If there are several, or ``pid`` is None, return the one with the most
        stages.

        ``with_stacks``: only consider processes with recorded stacks. Raises UsageError if there is none."""
        named = [process for process in self.processes if pid is None or process.who.pid == pid]
        if not named:
            others = ", ".join(str(process.who.pid) for process in self.processes[:20])
            reason = f"no process {pid}, only {others}" if others else "no process"
            if not others and os.fstat(self.held.number).st_size > self.size:
                reason = "no complete record: it is damaged, or cut off"
            raise UsageError(f"{one_line(self.path)} has {reason}")
        found = [process for process in named if process.who.stacks or not with_stacks]
        if not found:
            raise UsageError(f"{one_line(self.path)} has no stacks: gdbheap trace --stacks records them")
        return max(found, key=lambda process: (len(process.frames), sum(frame[1] for frame in process.frames)))


class LogWriter:
    """Writes a log, which can be read after each write. Raises UsageError if the file cannot be opened."""

    def __init__(self, path: str, continued: int | None = None, mode: int = PRIVATE) -> None:
        """Open a new log. If ``continued`` is given, open a log that was cut off instead, and append after its first
        ``continued`` bytes.
        """
        self.path = path
        try:
            self._file = _begun(path, mode) if continued is None else _continued(path, continued)
        except (OSError, ValueError) as error:
            raise not_written(path, error) from None

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return self._file.tell()

    def process(self, number: int, who: RecordedProcess) -> None:
        """Write the record that describes a process. Processes are numbered from 0."""
        self._document(PROCESS, number, vars(who))

    def stage(self, number: int, packed: bytes) -> None:
        """Write the next stage of a process. ``packed``: the stage, a compressed series of calls."""
        self._frame(STAGE, number, packed)

    def timed_stage(self, number: int, packed: bytes, tick: int, lane: int) -> None:
        """Write the next stage of a thread's lane, in a log that is ordered by time. ``tick``: the time of the stage's
        first call."""
        self._frame(TIMED_STAGE, number, TIMES.pack(tick, lane) + packed)

    def process_end(self, number: int, lost: int) -> None:
        """Write the record that ends a process: no more of its calls follow, and ``lost`` calls were not recorded."""
        self._document(PROCESS_END, number, {"lost": lost})

    def end(self, status: int | None) -> None:
        """Write the end of the log. ``status``: the command's exit status, None if unknown."""
        self._document(END, 0, {"status": status})

    def close(self) -> None:
        self._file.close()

    def _document(self, kind: bytes, number: int, content: dict[str, Any]) -> None:
        self._frame(kind, number, json.dumps(content).encode())

    def _frame(self, kind: bytes, number: int, content: bytes) -> None:
        self._file.write(FRAME.pack(kind, number, len(content)) + content)
        self._file.flush()


def _begun(path: str, mode: int) -> BinaryIO:
    with NewFile(path, mode) as new:
        file = open(os.dup(new.descriptor), "wb")
        file.write(MAGIC)
        file.flush()
        new.put()
        return file


def _continued(path: str, size: int) -> BinaryIO:
    file = open(open_to_append(path), "r+b")
    file.seek(size)
    file.truncate()
    return file


def is_call_log(path: str) -> bool:
    """Return whether the file exists and begins like a log of calls."""
    try:
        with open_regular(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def read_log(path: str) -> CallLog:
    """Read a log up to its last complete frame. Raises UsageError, with a text of one line, if the file is not a log or
    is damaged."""
    try:
        with open_to_read(path) as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise UsageError(f"{one_line(path)}: it is not a trace that gdbheap can read")
            log = CallLog(path, Descriptor(os.dup(file.fileno())), [])
            room = RoomLeft()
            for count, (kind, number, offset, size) in enumerate(_frames(file)):
                room.check(path, count, FRAMES_AT_ONCE)
                _take(log, file, kind, number, offset, size)
                log.size = offset + size
            return log
    except OSError as error:
        raise UsageError(f"{one_line(path)}: {one_line(error.strerror or error)}") from None
    except (ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        raise UsageError(f"{one_line(path)}: it is damaged: {one_line(error)}") from None


def _frames(file: BinaryIO) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield each complete frame: its kind, the number of its process, and the offset and size of its content."""
    length, offset = os.fstat(file.fileno()).st_size, len(MAGIC)
    while offset + FRAME.size <= length:
        file.seek(offset)
        kind, number, size = FRAME.unpack(file.read(FRAME.size))
        offset += FRAME.size
        if offset + size > length:
            return
        yield kind, number, offset, size
        offset += size


def _take(log: CallLog, file: BinaryIO, kind: bytes, number: int, offset: int, size: int) -> None:
    if kind == STAGE:
        log.processes[number].frames.append((offset, size, 0))
        return
    if kind == TIMED_STAGE:
        file.seek(offset)
        tick, lane = TIMES.unpack(file.read(min(size, TIMES.size)))
        process = log.processes[number]
        process.frames.append((offset + TIMES.size, size - TIMES.size, tick))
        process.lanes[lane] = process.lanes.get(lane, 0) + 1
        return
    if size > MAX_DOCUMENT_BYTES:
        raise ValueError("a document is larger than any that gdbheap writes")
    file.seek(offset)
    content = parsed(file.read(size))
    if kind == PROCESS:
        if number != len(log.processes) or number >= MAX_PROCESSES:
            raise ValueError("processes are out of order")
        log.processes.append(ProcessCalls(_recorded(content), log.held))
    elif kind == PROCESS_END:
        log.processes[number].lost, log.processes[number].ended = _checked(content["lost"], 0, BEYOND), True
    elif kind == END:
        status = content["status"]
        log.whole, log.status = True, None if status is None else _checked(status, -BEYOND_PIDS, BEYOND_PIDS)


def _recorded(content: Any) -> RecordedProcess:
    """Return the process that ``content``, the JSON of a record of the log, describes. Raises ValueError if it is
    invalid."""
    try:
        who = from_json(RecordedProcess, content)
    except UsageError as error:
        raise ValueError(str(error)) from None
    parents = () if who.parent is None else who.parent
    for pid in (who.pid, *parents[:1]):
        _checked(pid, 0, BEYOND_PIDS)
    for number in (who.began, who.stacks, *parents[1:]):
        _checked(number, 0, BEYOND)
    return who


def _checked(number: Any, least: int, beyond: int) -> int:
    """Return ``number`` if it is an integer, at least ``least`` and less than ``beyond``. Raises ValueError."""
    if type(number) is not int or not least <= number < beyond:
        raise ValueError(f"{quoted(repr(number))} is not a valid number in a log")
    return number
