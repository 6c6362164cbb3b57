"""One moment of a running process in numbers, and what happened between two of them: the rows of a series.

``time`` is seconds since 1970, ``offset`` seconds since the series began by a clock that is never set. What is not
known, or was not looked at this time, is None; what changed while it was read, and so is not believed, is doubtful."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["ArenaSample", "ClassSample", "Event", "MallocSample", "MmappedSample", "PoolsSample", "Sample", "Series"]


@dataclass(frozen=True)
class ArenaSample:
    """One of malloc's arenas by its address; bytes. ``system``, ``peak`` and ``in_use`` are as ``malloc_info`` says;
    ``top``: the top chunk's, None without one. ``trim``: the most that malloc_trim(0) would give back."""

    address: int
    system: int
    peak: int
    top: int | None = None
    in_use: int | None = None
    trim: int | None = None
    doubtful: bool = False


@dataclass(frozen=True)
class MmappedSample:
    """malloc's chunks with a mapping of their own: how many, their bytes, and the most that there ever were."""

    count: int
    bytes: int
    peak: int
    doubtful: bool = False


@dataclass(frozen=True)
class MallocSample:
    """The C library's malloc. ``doubtful``: the list of arenas did not close, so that some may be missing."""

    arenas: list[ArenaSample]
    mmapped: MmappedSample | None = None
    doubtful: bool = False

    @property
    def system(self) -> int:
        """What it has from the kernel, mmapped chunks included."""
        return sum(arena.system for arena in self.arenas) + (self.mmapped.bytes if self.mmapped else 0)

    @property
    def in_use(self) -> int | None:
        """What it has handed out of that, thread caches included; None where that of an arena is not known."""
        known = [arena.in_use for arena in self.arenas if arena.in_use is not None]
        whole = len(known) == len(self.arenas) and not self.doubtful
        return sum(known) + (self.mmapped.bytes if self.mmapped else 0) if whole else None

    @property
    def trim(self) -> int | None:
        """The most that malloc_trim(0) would give back; None where that of an arena is not known."""
        known = [arena.trim for arena in self.arenas if arena.trim is not None]
        return sum(known) if len(known) == len(self.arenas) and not self.doubtful else None

    @property
    def is_doubtful(self) -> bool:
        """Whether anything of it is."""
        mmapped = self.mmapped is not None and self.mmapped.doubtful
        return self.doubtful or mmapped or any(arena.doubtful for arena in self.arenas)


@dataclass(frozen=True)
class ClassSample:
    """Blocks of one size: pools (of mimalloc: pages) that have some, blocks in use, free blocks of these pools."""

    size: int
    pools: int
    used: int
    free: int


@dataclass(frozen=True)
class PoolsSample:
    """Python's own allocator: its arenas (of mimalloc: segments) and their bytes; pools (of mimalloc: pages) that hold
    blocks, and free ones. ``classes``: None where the pools were not read this time; ``odd`` of them were in motion,
    and are not counted."""

    allocator: str
    arenas: int
    bytes: int
    pools: int | None = None
    free_pools: int | None = None
    classes: list[ClassSample] | None = None
    odd: int = 0
    doubtful: bool = False

    @property
    def used(self) -> int | None:
        """The bytes of the blocks in use."""
        return None if self.classes is None else sum(row.size * row.used for row in self.classes)


@dataclass(frozen=True)
class Sample:
    """One process at one moment; sizes in bytes. ``rss`` is exact where ``pss`` is known, else within some hundred KiB;
    ``stopped``: for how many seconds it was stopped for this, None if it was not."""

    pid: int
    time: float
    offset: float
    rss: int | None
    pss: int | None = None
    anonymous: int | None = None
    file: int | None = None
    shared: int | None = None
    swap: int | None = None
    brk: int | None = None
    minor_faults: int = 0
    major_faults: int = 0
    threads: int = 0
    malloc: MallocSample | None = None
    pools: PoolsSample | None = None
    stopped: float | None = None

    @property
    def doubtful(self) -> bool:
        """Whether any figure of it is marked."""
        return (self.malloc is not None and self.malloc.is_doubtful) or (self.pools is not None and self.pools.doubtful)


@dataclass(frozen=True)
class Event:
    """What happened: ``kind`` is "start" (a process is looked at from now on; ``target`` says which one it is), "exec"
    (it runs another program now), "found" (an allocator or interpreter that was not there before), "end" (with the
    exit ``status`` of a command that was started), "snapshot" (written to ``path``, the process was stopped for
    ``seconds``), "failed" (``reason``: why a look, a stop or a snapshot was not possible) or "close" (the last)."""

    time: float
    offset: float
    kind: str
    pid: int | None = None
    target: dict[str, Any] | None = None
    path: str | None = None
    seconds: float | None = None
    status: int | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Series:
    """What a file of samples holds. ``every``: seconds between two samples of a process; ``stop``: it was stopped for
    each. ``cut``: the last line was not whole, as after a kill or on a full disk, and is left out."""

    time: float
    version: str
    every: float
    stop: bool = False
    host: str | None = None
    boot_id: str | None = None
    samples: list[Sample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    cut: bool = False
