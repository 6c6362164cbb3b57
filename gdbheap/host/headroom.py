"""Measure how much memory and disk space, and how many processes and threads, may still be used.

Limits are those of this machine, of control groups and of the user.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gdbheap.errors import GdbheapError, one_line
from gdbheap.host.procfs import PROC, kib, parse_status

__all__ = [
    "CGROUPS",
    "UNLIMITED",
    "RoomLeft",
    "copy_fits",
    "disk_left",
    "group_folders",
    "group_limit",
    "mappings_limit",
    "memory_left",
    "processes_left",
    "room_for_copy",
    "threads_left",
]

CGROUPS = "/sys/fs/cgroup"
UNLIMITED = 1 << 62
MAX_MAP_COUNT = 65_530
"""The kernel's default limit on the number of mappings of a process."""
# The free disk space that is left to other programs: this many bytes, or a twentieth of a small disk.
SPARED, SPARED_PART = 256 << 20, 20


def copy_fits(size: int) -> bool:
    """Return whether ``size`` bytes are at most half of the memory that this process can still get."""
    return size <= room_for_copy()


def room_for_copy() -> int:
    """Return half of the bytes that this process can still get. The other half stays free for other programs."""
    return min(memory_left("self"), _address_space_left()) // 2


class RoomLeft:
    """Checks the free memory while a file is read, so that the machine does not run out of it.

    Half of the memory that was free at first must stay free.
    """

    def __init__(self) -> None:
        self._spared = room_for_copy()
        self._asked = 0

    def check(self, name: str, done: int, step: int) -> None:
        """Measure the free memory again after every ``step`` bytes; ``done``: bytes read so far. Raises GdbheapError if
        too little memory is left.
        """
        if done - self._asked < step:
            return
        self._asked = done
        if 2 * room_for_copy() < self._spared:
            half = f"it needs more than {self._spared >> 20:,} MiB, half of the free memory"
            raise GdbheapError(f"there is not enough memory to read {one_line(name)}: {half}")


def disk_left(descriptor: int) -> int:
    """Return the bytes that gdbheap may write to the file system of an open file. A reserve stays free for other
    programs.
    """
    room = os.statvfs(descriptor)
    spared = min(SPARED, room.f_blocks * room.f_frsize // SPARED_PART)
    return max(0, room.f_bavail * room.f_frsize - spared)


def memory_left(process: int | str) -> int:
    """Return the bytes that a process can still get, on the machine and in each of its control groups."""
    machine = _meminfo().get("MemAvailable", 0)
    return max(0, min([machine, *(limit - used for limit, used in _memory_limits(process))]))


def group_limit(process: int | str) -> int | None:
    """Return the smallest memory limit of a process's control group and the groups above it, in bytes. None if there is
    no limit.
    """
    least = min((limit for limit, _used in _memory_limits(process)), default=UNLIMITED)
    return least if least < UNLIMITED else None


def processes_left(process: int | str) -> int:
    """Return how many more processes or threads the control groups of a process allow; 0 if a limit is exceeded."""
    groups = [
        max(0, limit - used)
        for folder in group_folders(process, "pids")
        for limit, used in [_pair(folder, ("pids.max",), ("pids.current",))]
    ]
    return min([UNLIMITED, *groups])


def threads_left() -> int:
    """Return how many more threads this user may start, by control groups, the kernel's limits and RLIMIT_NPROC."""
    running = _text(Path(f"{PROC}/loadavg")).partition("/")[2].split()
    tasks = int(running[0]) if running and running[0].isdigit() else 0
    limits = [_text(Path(f"{PROC}/sys/kernel/{name}")) for name in ("pid_max", "threads-max")]
    left = [processes_left("self"), *(int(limit) - tasks for limit in limits if limit.isdigit())]
    allowed = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.getuid() and allowed != resource.RLIM_INFINITY:
        left.append(allowed - threads_of_user(os.getuid()))
    return max(0, min(left))


def mappings_limit() -> int:
    """Return how many mappings a process may have (vm.max_map_count); the kernel default if it cannot be read."""
    text = _text(Path(f"{PROC}/sys/vm/max_map_count"))
    return int(text) if text.isdigit() else MAX_MAP_COUNT


def commit_left() -> int | None:
    """Return the bytes that can still be committed (vm.overcommit_memory 2); None in other modes."""
    if _text(Path(f"{PROC}/sys/vm/overcommit_memory")) != "2":
        return None
    sizes = _meminfo()
    return max(0, sizes.get("CommitLimit", 0) - sizes.get("Committed_AS", 0))


def _memory_limits(process: int | str) -> Iterator[tuple[int, int]]:
    """Yield (limit, used bytes) of a process's control group and of each group above it. The limit is UNLIMITED if
    there is none.
    """
    for folder in group_folders(process, "memory"):
        yield _pair(folder, ("memory.max", "memory.limit_in_bytes"), ("memory.current", "memory.usage_in_bytes"))


def _meminfo() -> dict[str, int]:
    fields = parse_status(_text(Path(f"{PROC}/meminfo")).encode())
    return {name: kib(value) or 0 for name, value in fields.items()}


def _address_space_left() -> int:
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft == resource.RLIM_INFINITY:
        return UNLIMITED
    pages = _text(Path(f"{PROC}/self/statm")).split()
    return max(0, soft - int(pages[0]) * resource.getpagesize()) if pages else 0


def group_folders(process: int | str, controller: str, proc: str = PROC, mounted: str = CGROUPS) -> Iterator[Path]:
    """Yield the folders of a process's control group and of the groups above it, for each mounted version (2 and 1).

    Inside a container the names may be those of the machine. Only the container's own group is visible there, at the
    root. ``proc`` and ``mounted``: where procfs and the control groups are mounted.
    """
    for line in _text(Path(f"{proc}/{process}/cgroup")).splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers and controller not in controllers.split(","):
            continue
        root = Path(mounted) / controller if controllers else Path(mounted)
        folder = root / path.lstrip("/")
        if ".." in folder.parts:
            folder = root
        for parent in (folder, *folder.parents):
            if parent == root.parent:
                break
            yield parent


def _pair(folder: Path, limits: tuple[str, ...], uses: tuple[str, ...]) -> tuple[int, int]:
    limit = next((int(text) for name in limits if (text := _text(folder / name)).isdigit()), UNLIMITED)
    used = next((int(text) for name in uses if (text := _text(folder / name)).isdigit()), 0)
    return limit, used


def _text(path: Path) -> str:
    with suppress(OSError, ValueError), open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read(1 << 20).strip()
    return ""


def threads_of_user(uid: int) -> int:
    """Return the number of threads in all visible processes of a user, which RLIMIT_NPROC limits."""
    total = 0
    for name in filter(str.isdigit, os.listdir(PROC)):
        fields = parse_status(_text(Path(f"{PROC}/{name}/status")).encode())
        if fields.get("Uid", "").split()[:1] == [str(uid)]:
            total += int(fields.get("Threads", "0")) if fields.get("Threads", "0").isdigit() else 0
    return total
