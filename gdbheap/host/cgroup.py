"""The control group that a process's memory is charged to, and what the kernel says of it (versions 1 and 2).

Files: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the kernel; pressure: accounting/psi.rst. No
more is needed than to read files that everybody may read: not a byte of the process's memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gdbheap.documents import renamed_keys
from gdbheap.host.headroom import CGROUPS, UNLIMITED, group_folders
from gdbheap.host.procfs import PROC

__all__ = ["Group", "Pressure", "find_group"]

TEXT_LIMIT = 1 << 20
CONTROLLER = "memory"
# The hierarchy's root has it, in version 1; what is charged there is the whole machine's.
OF_ROOT = "release_agent"
# Of memory.stat, by our names. Version 1 counts what the groups below it use under total_.
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
    """For how long tasks waited for memory; ``scope``: "group", or "machine" where groups have no such figures (version
    1)."""

    scope: str
    some: tuple[float, ...]
    full: tuple[float, ...]
    some_seconds: float
    full_seconds: float

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of a file of format 1."""
        return renamed_keys(content, {"of": "scope"})


@dataclass(frozen=True)
class Group:
    """A control group; bytes, None where the kernel does not say.

    ``path`` is as ``/proc/PID/cgroup`` names it. ``current`` is what is charged, with all groups below it; ``max`` the
    least limit of it and of the groups above, which is that of ``max_of``; ``high`` the least at which programs are
    slowed down. ``file`` is page cache with ``shmem``, shared memory and tmpfs. ``kernel`` has ``slab``. ``events``:
    how often, by the kernel's words: ``max`` (the limit was hit), ``oom``, ``oom_kill``, in version 2 ``low`` and
    ``high``."""

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


def find_group(process: int | str, proc: str = PROC, mounted: str = CGROUPS) -> Group | None:
    """The group of a process; None where none counts its memory apart from the machine's, or it cannot be read.
    ``proc`` and ``mounted``: where these file systems are."""
    folders = [folder for folder in group_folders(process, CONTROLLER, proc, mounted) if _has_books(folder)]
    return _read(folders, Path(proc), Path(mounted)) if folders else None


def _has_books(folder: Path) -> bool:
    first = (folder / "memory.usage_in_bytes").is_file() and not (folder / OF_ROOT).exists()
    return first or (folder / "memory.current").is_file()


def _read(folders: list[Path], proc: Path, mounted: Path) -> Group | None:
    """Of the first folder, whose limits are those of all."""
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
    return Group(
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
    """The kernel's own memory by its parts, before Linux 5.18."""
    known = [fields[part] for part in KERNELS_PARTS if part in fields]
    return sum(known) if known else None


def _name(folder: Path, mounted: Path) -> str:
    """As ``/proc/PID/cgroup`` names it: below the root of its hierarchy."""
    with suppress(ValueError):
        inside = folder.relative_to(mounted / CONTROLLER)
        return f"/{inside}" if str(inside) != "." else "/"
    with suppress(ValueError):
        inside = folder.relative_to(mounted)
        return f"/{inside}" if str(inside) != "." else "/"
    return str(folder)


def _least(folders: list[Path], name: str) -> tuple[int | None, Path | None]:
    """The least limit of that name, and whose it is."""
    found = [(limit, folder) for folder in folders if (limit := _number(folder / name)) is not None]
    limit, folder = min(found, key=lambda pair: pair[0], default=(UNLIMITED, None))
    return (limit, folder) if limit < UNLIMITED else (None, None)


def _first_events(folder: Path) -> dict[str, int]:
    """What version 1 counts, by the names of version 2."""
    killed = _pairs(folder / "memory.oom_control").get("oom_kill")
    hit = _number(folder / "memory.failcnt")
    return {name: count for name, count in (("max", hit), ("oom_kill", killed)) if count is not None}


def _pressure(folder: Path, proc: Path, is_second: bool) -> Pressure | None:
    own = _pressure_in(folder / "memory.pressure", "group") if is_second else None
    return own or _pressure_in(proc / "pressure" / "memory", "machine")


def _pressure_in(path: Path, of: str) -> Pressure | None:
    """Lines "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234", the total in microseconds."""
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
    """Lines of a name and a number."""
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal() and len(row[1]) <= 20}


def _number(path: Path) -> int | None:
    """A number alone; None also for "max"."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() and len(text) <= 20 else None


def _text(path: Path) -> str:
    with suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read(TEXT_LIMIT)
    return ""
