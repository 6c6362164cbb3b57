"""Read the sizes of memory that are polled: of a process, a control group, or the machine. A reading takes
microseconds.

The formats are described in proc(5), and in the kernel's Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/memory.rst.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gdbheap._native import Descriptor
from gdbheap.dataclass import dataclass
from gdbheap.host.cgroup import OWN_EVENTS
from gdbheap.host.headroom import CGROUPS, UNLIMITED, group_folders
from gdbheap.host.procfs import PROC, ProcessFolder, kib, parse_status
from gdbheap.watching.triggers import Reading

__all__ = ["GroupMemory", "MachineMemory", "ProcessMemory", "group_at", "groups_above", "groups_of"]

PAGE = resource.getpagesize()
TABLE_BYTES = 1 << 16
# From this share of the limit on, a group's reclaimable memory is read too. That is the most expensive of the readings.
NEAR_SHARE = 0.5
# The kernel reclaims these before it kills a process: file pages and caches. None of them includes shared memory. In
# cgroup version 1, names with total_ include the groups below.
RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")


class _OpenFile:
    """A file of the kernel that is opened once and read many times. Raises OSError."""

    def __init__(self, path: str) -> None:
        self._file = Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    @property
    def descriptor(self) -> int:
        return self._file.number

    def read(self) -> bytes:
        """Return the file's current content. Raises OSError (ENODEV or ESRCH) if the process or group no longer
        exists."""
        return os.pread(self._file.number, TABLE_BYTES, 0)


class ProcessMemory:
    """The RSS of a process, read from ``statm``. The file is opened for each reading, to save descriptors in a watch of
    many processes. ``is_ending``: whether the process had no memory left at the last reading. Raises OSError.
    """

    limit = kills = None

    def __init__(self, folder: ProcessFolder) -> None:
        self._folder, self._place = folder, ""
        self.is_ending = False

    def read(self, time: float, fired: frozenset[str] = frozenset()) -> Reading:
        """Return the current RSS; 0 for a process that is ending. Raises OSError if it has ended."""
        pages = self._pages()
        if pages is None:
            # The thread whose file was read has ended, but other threads may still run.
            living = self._folder.living()
            if living is None:
                raise ProcessLookupError("the process has ended")
            self._place = living[0]
            pages = self._pages()
        self.is_ending = pages is None
        pages = pages or 0
        return Reading(time, pages * PAGE, pages * PAGE, fired=fired)

    def _pages(self) -> int | None:
        """Return the number of resident pages; None if the process is a zombie or its file is gone."""
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = self._folder.read(f"{self._place}statm").split()
            return int(fields[1]) if len(fields) > 1 and fields[0] != b"0" else None
        return None


@dataclass(frozen=True)
class _Names:
    """The names of a control group's files, in one version of control groups."""

    used: str
    limits: tuple[str, ...]
    statistics: tuple[str, ...]
    events: str


_V2 = _Names("memory.current", ("memory.max", "memory.high"), RECLAIMABLE, "memory.events")
_V1 = _Names(
    "memory.usage_in_bytes", ("memory.limit_in_bytes",), tuple(f"total_{name}" for name in RECLAIMABLE),
    "memory.oom_control",
)  # fmt: skip


class GroupMemory:
    """The memory of a control group, including the groups below it. Raises OSError if it has no memory controller.

    ``is_exact``: subtract the reclaimable memory at each reading, not only near the limit. ``is_own``: report only the
    events of the group itself. Otherwise a group above many services would report the events of each service."""

    def __init__(self, folder: Path, is_exact: bool = False, is_own: bool = False) -> None:
        self.folder, self.is_exact = folder, is_exact
        self.is_first_version = not (folder / _V2.used).exists()
        self._names = _V1 if self.is_first_version else _V2
        self._used = _OpenFile(str(folder / self._names.used))
        self._limits = [_OpenFile(str(folder / name)) for name in self._names.limits if (folder / name).exists()]
        self._statistics = _OpenFile(str(folder / "memory.stat"))
        self._events = _OpenFile(str(folder / self._names.events))
        is_own = is_own and (folder / OWN_EVENTS).exists()
        self._own_events = _OpenFile(str(folder / OWN_EVENTS)) if is_own else self._events
        self._kills = self._count(self._events).get(b"oom_kill")
        self._counts = self._count(self._own_events)

    @property
    def events(self) -> int:
        """The descriptor of the file with the group's event counts. In version 2, poll(2) reports when a count
        changes."""
        return self._events.descriptor

    @property
    def name(self) -> str:
        """The group's name as in ``/proc/PID/cgroup``, or its folder if it is not below the usual mount point."""
        root = Path(CGROUPS, "memory") if self.is_first_version else Path(CGROUPS)
        if self.folder == root:
            return "/"
        return f"/{self.folder.relative_to(root)}" if root in self.folder.parents else str(self.folder)

    @property
    def kills(self) -> int | None:
        """The number of processes that the kernel had killed in the group by the last reading; None if the kernel does
        not count them.
        """
        return self._kills

    @property
    def limit(self) -> int | None:
        """The lowest of the group's limits in bytes; None if it has no limit.

        memory.high counts as a limit if it is below memory.max, because the kernel slows programs down there."""
        least = min((_number(file.read()) for file in self._limits), default=UNLIMITED)
        return least if least < UNLIMITED else None

    def read(self, time: float, fired: frozenset[str] = frozenset()) -> Reading:
        """Return a reading of the group's current memory. Reclaimable memory is subtracted near the limit, or always if
        ``is_exact``. Raises OSError if the group no longer exists.
        """
        used, limit = _number(self._used.read()), self.limit
        near = limit is not None and used >= NEAR_SHARE * limit
        size = max(0, used - self._reclaimable()) if near or self.is_exact else used
        return Reading(time, size, used, limit, fired | self._news())

    def _reclaimable(self) -> int:
        fields = dict(line.partition(b" ")[::2] for line in self._statistics.read().splitlines())
        return sum(_number(fields.get(name.encode(), b"0")) for name in self._names.statistics)

    def _count(self, file: _OpenFile) -> dict[bytes, int]:
        """Return how often the group ran out of memory ("oom") and a process was killed ("oom_kill"). A count that the
        kernel does not report is left out.
        """
        pairs = (line.split() for line in file.read().splitlines())
        return {pair[0]: _number(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in (b"oom", b"oom_kill")}

    def _news(self) -> frozenset[str]:
        """Return the names of the counts that have risen since the last reading."""
        now, before = self._count(self._own_events), self._counts
        self._counts = now
        self._kills = self._count(self._events).get(b"oom_kill")
        return frozenset(name.decode() for name, count in now.items() if count > before.get(name, 0))


class MachineMemory:
    """The machine's memory that is used and cannot be made available, by the kernel's estimate in ``/proc/meminfo``."""

    name = ""
    kills = None

    def __init__(self) -> None:
        self._file = _OpenFile(f"{PROC}/meminfo")

    @property
    def limit(self) -> int | None:
        """The machine's total memory in bytes. Raises OSError."""
        return self.read(0).limit

    def read(self, time: float, fired: frozenset[str] = frozenset()) -> Reading:
        """Return a reading of the machine's memory: MemTotal minus MemAvailable. Raises OSError."""
        fields = parse_status(self._file.read())
        whole, left = (kib(fields.get(name)) or 0 for name in ("MemTotal", "MemAvailable"))
        return Reading(time, whole - left, whole - left, whole or None, fired)


def groups_of(process: str) -> list[GroupMemory]:
    """Return the control groups of a process that account for memory, nearest first. ``process``: its folder below
    /proc. The nearest group also reports the events of the groups below it; the other groups report only their own."""
    return _with_memory(group_folders(process, "memory"))


def groups_above(folder: Path) -> list[GroupMemory]:
    """Return a control group and all groups above it that account for memory, nearest first. The nearest group also
    reports the events of the groups below it; the other groups report only their own."""
    above = (place for place in (folder, *folder.parents) if Path(CGROUPS) in place.parents or CGROUPS == str(place))
    return _with_memory(above)


def group_at(folders: Iterable[Path], is_exact: bool) -> GroupMemory | None:
    """Return the first of these folders that is a control group with memory accounting; None if none of them is."""
    group = next(iter(_with_memory(folders)), None)
    if group is not None:
        group.is_exact = is_exact
    return group


def _with_memory(folders: Iterable[Path]) -> list[GroupMemory]:
    found: list[GroupMemory] = []
    for folder in folders:
        with suppress(OSError):
            found.append(GroupMemory(folder, is_own=bool(found)))
    return found


def _number(text: bytes) -> int:
    """Return the number in a file of the kernel; UNLIMITED for "max"."""
    word = text.strip()
    return min(int(word), UNLIMITED) if word.isdigit() else UNLIMITED
