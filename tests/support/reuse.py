"""Reuse a process id: a process ends, and another one gets its id at once."""

from __future__ import annotations

import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support import programs
from support.busy import wait_for

NOT_ALLOWED = 3
TICKS = os.sysconf("SC_CLK_TCK")


class Swapped:
    """A program that waits. ``swap`` replaces it by another process with the same id."""

    def __init__(self, folder: Path, mebibytes: int) -> None:
        """Start the first process."""
        self.file = folder / "reborn-counters"
        self.file.touch()
        self._size = mebibytes
        self.first = subprocess.Popen(programs.c_program("idle"), stdin=subprocess.DEVNULL)
        self.pid = self.first.pid
        self._second: subprocess.Popen[bytes] | None = None
        wait_for(lambda: _is_asleep(self.pid), "it does not come to rest")

    def swap(self) -> None:
        """End the first process, and let another one get its id; skip if the kernel does not permit choosing one."""
        if self._second is not None:
            return
        # A start time has the precision of a clock tick. Before an id is reused, the kernel goes through all others,
        # which takes longer.
        started = int(Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[19])
        wait_for(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS > started + 2, "no time passes")
        self.first.kill()
        self.first.wait()
        command = programs.c_program("reborn", self.file, self.pid, self._size)
        self._second = subprocess.Popen(command, stdin=subprocess.PIPE)
        wait_for(self._has_begun, "no process got the id")

    def _has_begun(self) -> bool:
        assert self._second is not None
        if self._second.poll() == NOT_ALLOWED:
            pytest.skip("choosing a process id needs root or CAP_CHECKPOINT_RESTORE, and Linux 5.5 (clone3, set_tid)")
        assert self._second.returncode is None, f"no process got the id: status {self._second.returncode}"
        return self.words()[0] > 0

    def words(self) -> tuple[int, int]:
        """Return the counter of the second process, and how many signals it got."""
        counted, signals = struct.unpack("<2Q", self.file.read_bytes()[:16].ljust(16, b"\0"))
        return counted, signals

    def untouched(self) -> None:
        """Fail if the second process is traced, is stopped, or got a signal."""
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        assert status["TracerPid"] == "0" and status["State"][0] in "SR", status
        before, _ = self.words()
        wait_for(lambda: self.words()[0] > before + 1, "it stands still")
        assert self.words()[1] == 0, "it got a signal"

    def close(self) -> None:
        """End both processes."""
        self.first.kill()
        self.first.wait()
        if self._second is not None and self._second.stdin is not None:
            self._second.stdin.close()
            self._second.wait(programs.PATIENCE)


def _is_asleep(pid: int) -> bool:
    is_loaded = "libc" in Path(f"/proc/{pid}/maps").read_text()
    return is_loaded and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@contextmanager
def swapped(folder: Path, mebibytes: int = 1) -> Iterator[Swapped]:
    """Yield a program whose process id another process can get. The other process then has this much memory."""
    found = Swapped(folder, mebibytes)
    try:
        yield found
    finally:
        found.close()
