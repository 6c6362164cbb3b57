"""The files that a recorder writes.

Each process has one file, or one for each of its threads. Finished stages are moved from the file into the log while
the process runs (native/calls/src/header.rs).
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import gdbheap
from gdbheap import _native
from gdbheap.errors import Unsupported
from gdbheap.machines.machine import THIS_MACHINE
from gdbheap.targets.following import GROWTH_INSTEAD
from gdbheap.tracing.log import BEYOND, BY_LOCK, BY_TIME, RecordedProcess
from gdbheap.tracing.preload import can_be_preloaded

__all__ = [
    "ENVIRONMENT",
    "OF_PYTHON",
    "ORDER",
    "PARTS",
    "RecorderFile",
    "is_recorders_name",
    "parts_path",
    "recorder_library",
]

ENVIRONMENT = "GDBHEAP_CALLS"
ORDER = "GDBHEAP_CALLS_ORDER"
# This variable makes a recorder also record the calls of Python's own allocator.
OF_PYTHON = "GDBHEAP_CALLS_OF_PYTHON"
SUFFIX = ".calls"
# The pid and the time when it began, as native/recorder/src/file.rs writes them. The kernel's pids are below 2^22
# (PID_MAX_LIMIT).
_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})\.calls")
MAX_PID = 1 << 22
MAX_LOST = 1 << 40
# The end of the name of the folder with these files. The part of the name before it is the log's path.
PARTS = ".parts"
HEADER_BYTES = 16 << 10
TEXT_AT = 8 << 10
WORDS = struct.Struct("<21Q")
MAGIC, VERSION = int.from_bytes(b"gdbcalls", "little"), 1
KEEP_SIZE, PUNCH_HOLE = 1, 2


def recorder_library() -> str:
    """Return the path of the recorder: the library that is preloaded into programs. Raises Unsupported if it is
    missing."""
    folder = Path(gdbheap.__file__).resolve().parent
    found = next(iter(sorted(folder.glob("_recorder*.so"))), None)
    if found is None:
        if not THIS_MACHINE.has_patches:
            raise Unsupported(f"gdbheap can record calls only on x86-64; {GROWTH_INSTEAD}")
        raise Unsupported("the recorder is missing: gdbheap was installed without it")
    if not can_be_preloaded(str(found)):
        raise Unsupported(f"LD_PRELOAD cannot name the recorder, because its path has a space or a colon: {found}")
    return str(found)


def is_recorders_name(name: str) -> bool:
    """Return whether a recorder may have given a file this name."""
    found = _NAME.fullmatch(name)
    return found is not None and 0 < int(found[1], 16) <= MAX_PID


def parts_path(log: str, who: RecordedProcess) -> str:
    """Return the path of the file into which a process is recorded, if the log's path is ``log``."""
    return os.path.join(log + PARTS, f"{who.pid:016x}-{who.began:016x}{SUFFIX}")


class RecorderFile:
    """The file into which one process, or one thread of it, is recorded.

    ``taken``: how many of the file's stages are already in the log.
    ``started``: when the kernel started the process, 0 if unknown.
    ``began``: the time in the file's name.
    ``is_lane``: whether each thread of the process has its own file.
    """

    def __init__(self, path: str, taken: int = 0) -> None:
        """Open the file. Raises OSError, also if a recorder did not make the file."""
        if not is_recorders_name(os.path.basename(path)):
            raise _no_recorders(path)
        self.path, self.taken = path, taken
        self._descriptor = _opened(path)
        self.started, self.is_lane = 0, False
        pid, _, began = os.path.basename(path).partition(".")[0].partition("-")
        self.pid, self.began = int(pid, 16), int(began, 16)

    def close(self) -> None:
        os.close(self._descriptor)

    def remove(self) -> None:
        """Remove the file. A process that is still being recorded in it stops recording at the end of the current
        stage."""
        os.unlink(self.path)

    @property
    def _header(self) -> bytes:
        return os.pread(self._descriptor, HEADER_BYTES, 0)

    def who(self) -> RecordedProcess | None:
        """Return the process that records in the file; None if its header is not written yet.

        The recorded program may have overwritten the header. So the process id comes from the file's name, and numbers
        that no recorder writes are left out."""
        header = self._header
        if len(header) < HEADER_BYTES:
            return None
        words = WORDS.unpack_from(header)
        magic, version, lane_of, stacks = words[0], words[1], words[12], words[20]
        parent, parent_began, fork = words[7:10]
        is_lane = 0 < lane_of < BEYOND
        has_parent = 0 < parent <= MAX_PID and parent_began < BEYOND and fork < BEYOND
        if (magic, version) != (MAGIC, VERSION):
            return None
        texts = dict(text.partition("=")[::2] for text in _texts(header[TEXT_AT:]))
        said = header[TEXT_AT:].partition(b"words=")[2].rstrip(b"\0").split(b"\0")
        return RecordedProcess(
            self.pid,
            lane_of if is_lane else self.began,
            texts.get("exe", ""),
            texts.get("malloc", ""),
            [word.decode(errors="surrogateescape") for word in said],
            {name: value for name, value in texts.items() if name not in ("exe", "malloc")},
            (parent, parent_began, fork) if has_parent else None,
            BY_TIME if is_lane else BY_LOCK,
            stacks if stacks < BEYOND else 0,
        )

    def take(self, is_last: bool) -> Iterator[tuple[bytes, int]]:
        """Yield the finished stages, packed for the log, each with the time of its first call. If ``is_last`` is true,
        yield the unfinished stage too.

        When the next stage is requested, the disk space of the previous stage is released."""
        header = self._header
        if len(header) < HEADER_BYTES:
            return
        current: int = WORDS.unpack_from(header)[5] - 1
        while self.taken < current + is_last:
            is_current = self.taken == current
            offset, size = _native.place_of_stage(self.taken, is_current)
            if not self._has_data(offset, size):
                # The number of stages comes from the header, which the recorded program may have overwritten.
                break
            yield _native.pack_stage(os.pread(self._descriptor, size, offset))
            self.taken += 1
            if not is_current:
                _give_back(self._descriptor, offset, size)
        waiting = _native.waiting_stage(header) if is_last else b""
        if waiting:
            yield _native.pack_stage(waiting)

    def rest(self) -> list[bytes]:
        """Return the stages that are not in the log yet, including the unfinished one. The stages stay in the file."""
        header = self._header
        if len(header) < HEADER_BYTES:
            return []
        begun = WORDS.unpack_from(header)[5]
        found = []
        for number in range(self.taken, begun):
            offset, size = _native.place_of_stage(number, number == begun - 1)
            if not self._has_data(offset, size):
                break
            found.append(os.pread(self._descriptor, size, offset))
        return found

    def _has_data(self, offset: int, size: int) -> bool:
        """Return whether anything was written to these bytes of the file."""
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA) < offset + size
        except OSError as error:
            # ENXIO: there is only a hole from here to the end, or the file is shorter. Other errors: this file system
            # cannot find holes.
            return error.errno != errno.ENXIO

    def lost(self) -> int:
        """Return how many calls could not be recorded, by the recorder's own count in the header."""
        header = self._header
        return min(WORDS.unpack_from(header)[6], MAX_LOST) if len(header) >= HEADER_BYTES else 0


def _opened(path: str) -> int:
    """Open a recorder's file.

    Raises OSError if it is a link or not a regular file. Raises OSError also if the file has several hard links,
    because another user may then have put it there."""
    number = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(number)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        os.close(number)
        raise _no_recorders(path)
    return number


def _no_recorders(path: str) -> OSError:
    return OSError(errno.EPERM, "it is not a file that the recorder made", path)


def _texts(text: bytes) -> Iterator[str]:
    for part in text.partition(b"words=")[0].split(b"\0"):
        if part:
            yield part.decode(errors="surrogateescape")


def _give_back(descriptor: int, offset: int, size: int) -> None:
    """Release the disk space of a part of a file (fallocate(2)). On a file system without holes it is not released."""
    with suppress(AttributeError, OSError):
        mode = PUNCH_HOLE | KEEP_SIZE
        ctypes.CDLL(None).fallocate64(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(size))
