"""The control group that accounts for a process's memory, and the kernel's figures about the group (versions 1 and 2).

The kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst describe the files, and accounting/psi.rst
the pressure. Everybody may read these files. The process's memory is not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gdbheap.dataclass import dataclass
from gdbheap.documents import renamed_keys
from gdbheap.host.headroom import CGROUPS, UNLIMITED, group_folders
from gdbheap.host.procfs import PROC

__all__ = ["ControlGroup", "Pressure", "count_kills", "OWN_EVENTS", "find_group", "find_kills", "kills_of"]

TEXT_LIMIT = 1 << 20
CONTROLLER = "memory"
# The counts of a group itself (Linux 5.2). Those in memory.events include the groups below it.
OWN_EVENTS = "memory.events.local"
FIRST_EVENTS = "memory.oom_control"
# The files with the number of killed processes, of version 2 and of version 1.
KILLS = (OWN_EVENTS, "memory.events", FIRST_EVENTS)
# In version 1 only the root of a hierarchy has this file. The root's figures are those of the whole machine.
OF_ROOT = "release_agent"
# Keys of memory.stat, by fields of ControlGroup. In version 1, keys with total_ include the groups below.
SECOND = {
    "anon": "anon", "file": "file", "shmem": "shmem", "slab": "slab", "kernel": "kernel",
    "inactive_file": "inactive_file",
}  # fmt: skip
FIRST = {
    "anon": "total_rss", "file": "total_cache", "shmem": "total_shmem", "inactive_file": "total_inactive_file",
    "swap": "total_swap",
}  # fmt: skip
KERNELS_PARTS = ("slab", "kernel_stack", "pagetables", "percpu", "sock")


@dataclass(frozen=True)
class Pressure:
    """The share of time in which tasks waited for memory.

    ``some``, ``full``: the percentages of time, over the last 10, 60 and 300 seconds, in which some or all tasks
    waited. ``scope``: "group", or "machine" if groups have no such figures (version 1).
    """

    scope: str
    some: tuple[float, ...]
    full: tuple[float, ...]
    some_seconds: float
    full_seconds: float

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the record ``content`` of a format 1 file with today's key names."""
        return renamed_keys(content, {"of": "scope"})


@dataclass(frozen=True)
class ControlGroup:
    """A control group; sizes are bytes, None if the kernel does not report them.

    ``path``: the path as in ``/proc/PID/cgroup``.
    ``current``: the memory of the group and of all groups below it.
    ``max``: the smallest limit of the group and of all groups above it; ``max_of``: the group with this limit.
    ``high``: the smallest limit at which programs are slowed down.
    ``file``: page cache including ``shmem``, which is shared memory and tmpfs.
    ``kernel``: the kernel's memory, including ``slab``.
    ``events``: counts by the kernel's names: ``max`` (the limit was hit), ``oom``, ``oom_kill``, and in version 2
    ``low`` and ``high``.
    """

    path: str
    version: int
    current: int
    max: int | None
    max_of: str | None
    high: int | None
    anon: int | None
    file: int | None
    shmem: int | None
    slab: int | None
    kernel: int | None
    inactive_file: int | None
    swap: int | None
    events: dict[str, int]
    pressure: Pressure | None


def find_group(process: int | str, proc: str = PROC, mounted: str = CGROUPS) -> ControlGroup | None:
    """Return the control group that counts a process's memory. Return None if only the root group counts it, or if the
    group cannot be read.

    ``proc`` and ``mounted``: where procfs and the control groups are mounted.
    """
    folders = [folder for folder in group_folders(process, CONTROLLER, proc, mounted) if _has_books(folder)]
    return _read(folders, Path(proc), Path(mounted)) if folders else None


def _has_books(folder: Path) -> bool:
    first = (folder / "memory.usage_in_bytes").is_file() and not (folder / OF_ROOT).exists()
    return first or (folder / "memory.current").is_file()


def find_kills(process: str) -> Path | None:
    """Return the file with the number of processes that the OOM killer has killed in a process's own group; None if
    there is none. ``process``: its folder in /proc.
    """
    folder = next(iter(group_folders(process, CONTROLLER)), None)
    return None if folder is None else kills_of(folder)


def kills_of(folder: Path) -> Path | None:
    """Return the file with the number of processes that the OOM killer has killed in a control group itself; None if
    there is none. ``folder``: the group's folder.
    """
    return next((folder / name for name in KILLS if (folder / name).is_file()), None)


def count_kills(path: Path | None) -> int | None:
    """Return the number in a file that ``find_kills`` found; None if it is unknown, for example because the group no
    longer exists.
    """
    return None if path is None else _pairs(path).get("oom_kill")


def _read(folders: list[Path], proc: Path, mounted: Path) -> ControlGroup | None:
    """Return the group of the first folder, with the smallest limits that any of ``folders`` sets.

    Return None if the kernel does not count the group's memory.
    """
    folder = folders[0]
    is_second = (folder / "memory.current").is_file()
    current = _number(folder / ("memory.current" if is_second else "memory.usage_in_bytes"))
    if current is None:
        return None
    limit, limited = _least(folders, "memory.max" if is_second else "memory.limit_in_bytes")
    high, _ = _least(folders, "memory.high") if is_second else (None, None)
    fields = _pairs(folder / "memory.stat")
    sizes = {name: fields.get(key) for name, key in (SECOND if is_second else FIRST).items()}
    if is_second:
        sizes["swap"] = _number(folder / "memory.swap.current")
        sizes["kernel"] = sizes["kernel"] if sizes["kernel"] is not None else _sum(fields)
    else:
        sizes["slab"], sizes["kernel"] = None, _number(folder / "memory.kmem.usage_in_bytes")
    return ControlGroup(
        _name(folder, mounted),
        2 if is_second else 1,
        current,
        limit,
        None if limited is None else _name(limited, mounted),
        high,
        events=_pairs(folder / "memory.events") if is_second else _first_events(folder),
        pressure=_pressure(folder, proc, is_second),
        **{name: sizes[name] for name in ("anon", "file", "shmem", "slab", "kernel", "inactive_file", "swap")},
    )


def _sum(fields: Mapping[str, int]) -> int | None:
    """Return the kernel's memory as the sum of its parts, for kernels before Linux 5.18; None if no part is known."""
    known = [fields[part] for part in KERNELS_PARTS if part in fields]
    return sum(known) if known else None


def _name(folder: Path, mounted: Path) -> str:
    """Return the group's path below the root of its hierarchy, as in ``/proc/PID/cgroup``."""
    with suppress(ValueError):
        inside = folder.relative_to(mounted / CONTROLLER)
        return f"/{inside}" if str(inside) != "." else "/"
    with suppress(ValueError):
        inside = folder.relative_to(mounted)
        return f"/{inside}" if str(inside) != "." else "/"
    return str(folder)


def _least(folders: list[Path], name: str) -> tuple[int | None, Path | None]:
    """Return the smallest limit in the files with this name, and the folder that sets it; (None, None) if none does."""
    found = [(limit, folder) for folder in folders if (limit := _number(folder / name)) is not None]
    limit, folder = min(found, key=lambda pair: pair[0], default=(UNLIMITED, None))
    return (limit, folder) if limit < UNLIMITED else (None, None)


def _first_events(folder: Path) -> dict[str, int]:
    """Return the event counts of a version 1 group, under the names of version 2: ``max`` and ``oom_kill``."""
    killed = count_kills(folder / FIRST_EVENTS)
    hit = _number(folder / "memory.failcnt")
    return {name: count for name, count in (("max", hit), ("oom_kill", killed)) if count is not None}


def _pressure(folder: Path, proc: Path, is_second: bool) -> Pressure | None:
    own = _pressure_in(folder / "memory.pressure", "group") if is_second else None
    return own or _pressure_in(proc / "pressure" / "memory", "machine")


def _pressure_in(path: Path, of: str) -> Pressure | None:
    """Return the pressure figures in a file of the kernel; None if there are none. ``of``: the scope, "group" or
    "machine".

    A line has the form "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234", with the total in microseconds.
    """
    rows: dict[str, list[float]] = {}
    for line in _text(path).splitlines():
        kind, *words = line.split()
        with suppress(ValueError):
            rows[kind] = [float(word.partition("=")[2]) for word in words]
    some, full = rows.get("some", []), rows.get("full", [])
    if len(some) != 4 or len(full) != 4:
        return None
    return Pressure(of, tuple(some[:3]), tuple(full[:3]), some[3] / 1e6, full[3] / 1e6)


def _pairs(path: Path) -> dict[str, int]:
    """Return the lines of a file that consist of a name and a number, as {name: number}."""
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal() and len(row[1]) <= 20}


def _number(path: Path) -> int | None:
    """Return the number in a file; None if the file has no number, but for example the word "max"."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() and len(text) <= 20 else None


def _text(path: Path) -> str:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read(TEXT_LIMIT)
    return ""
