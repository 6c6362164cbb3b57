"""Control groups of the tests with a limit on memory, if this machine permits them."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")
FIRST, SECOND = ROOT / "memory", ROOT
PATIENCE = 60


class LimitedGroup:
    """A control group; the kernel kills a process in it when ``limit`` bytes are exceeded."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self.is_first_version = (folder / "memory.limit_in_bytes").exists()
        self._write(("memory.limit_in_bytes", "memory.max"), str(limit))
        with contextlib.suppress(OSError):
            # Without swap, the limit covers all memory of the group.
            self._write(("memory.memsw.limit_in_bytes", "memory.swap.max"), str(limit if self.is_first_version else 0))

    def _write(self, names: tuple[str, str], text: str) -> None:
        (self.folder / names[0 if self.is_first_version else 1]).write_text(text)

    @property
    def name(self) -> str:
        """Return the group's name in ``/proc/PID/cgroup``."""
        return f"/{self.folder.relative_to(FIRST if self.is_first_version else SECOND)}"

    def take_in(self, pid: int) -> None:
        """Move a process into the group."""
        (self.folder / "cgroup.procs").write_text(str(pid))

    def members(self) -> list[int]:
        """Return the processes in the group."""
        return list(map(int, (self.folder / "cgroup.procs").read_text().split()))

    def leave(self, room: int) -> None:
        """Lower the limit to ``room`` bytes above the present use."""
        used = self.folder / ("memory.usage_in_bytes" if self.is_first_version else "memory.current")
        self._write(("memory.limit_in_bytes", "memory.max"), str(int(used.read_text()) + room))

    @property
    def kills(self) -> int:
        """Return how many processes the kernel has killed in the group."""
        text = (self.folder / ("memory.oom_control" if self.is_first_version else "memory.events")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])


@contextlib.contextmanager
def limited_group(limit: int, rng: random.Random) -> Iterator[LimitedGroup]:
    """Yield a new group, which is removed at the end; skip the test if none can be made."""
    root = FIRST if (FIRST / "memory.limit_in_bytes").exists() else SECOND
    if os.geteuid() or not os.access(root, os.W_OK):
        pytest.skip(f"{root} cannot be written to: no control group can be made here")
    folder = root / f"gdbheap-test-{os.getpid()}-{rng.randrange(1 << 30)}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            group = LimitedGroup(folder, limit)
        except OSError as error:
            pytest.skip(f"no limit on memory can be set here: {error}")
        yield group
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return folder.rmdir()
        except OSError:
            # A killed process may still be ending.
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)
