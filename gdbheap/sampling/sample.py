"""The rows of a series: the figures of a running process at one moment, and the events between two moments.

``time`` is in seconds since 1970, ``offset`` in seconds since the series began, by a monotonic clock. None means that a
figure is unknown, or was not read this time. A figure is doubtful if it changed while it was read."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from gdbheap.dataclass import dataclass

__all__ = [
    "ArenaSample",
    "ClassSample",
    "SeriesEvent",
    "MallocSample",
    "MmappedSample",
    "PoolsSample",
    "Sample",
    "Series",
]


@dataclass(frozen=True)
class ArenaSample:
    """An arena of glibc's malloc, identified by its address; sizes in bytes.

    ``system``, ``peak`` and ``in_use`` are as in ``malloc_info``; ``top``: the size of the top chunk, None if there is
    none; ``trim``: the most that malloc_trim(0) can return."""

    address: int
    system: int
    peak: int
    top: int | None = None
    in_use: int | None = None
    trim: int | None = None
    doubtful: bool = False


@dataclass(frozen=True)
class MmappedSample:
    """malloc's mmapped chunks: their number, their bytes, and the most bytes that they ever had (``peak``)."""

    count: int
    bytes: int
    peak: int
    doubtful: bool = False


@dataclass(frozen=True)
class MallocSample:
    """The figures of glibc's malloc. ``doubtful``: arenas may be missing, because the circular list of arenas did not
    end where it began.
    """

    arenas: list[ArenaSample]
    mmapped: MmappedSample | None = None
    doubtful: bool = False

    @property
    def system(self) -> int:
        """Bytes that malloc has from the kernel, including mmapped chunks."""
        return sum(arena.system for arena in self.arenas) + (self.mmapped.bytes if self.mmapped else 0)

    @property
    def in_use(self) -> int | None:
        """Bytes that malloc has handed out, including blocks in thread caches; None if they are unknown for an
        arena."""
        known = [arena.in_use for arena in self.arenas if arena.in_use is not None]
        whole = len(known) == len(self.arenas) and not self.doubtful
        return sum(known) + (self.mmapped.bytes if self.mmapped else 0) if whole else None

    @property
    def trim(self) -> int | None:
        """The most that malloc_trim(0) can return, in bytes; None if it is unknown for an arena."""
        known = [arena.trim for arena in self.arenas if arena.trim is not None]
        return sum(known) if len(known) == len(self.arenas) and not self.doubtful else None

    @property
    def is_doubtful(self) -> bool:
        """Whether any of malloc's figures is doubtful."""
        mmapped = self.mmapped is not None and self.mmapped.doubtful
        return self.doubtful or mmapped or any(arena.doubtful for arena in self.arenas)


@dataclass(frozen=True)
class ClassSample:
    """The blocks of one size: the pools (mimalloc: pages) with such blocks, the blocks in use, and the free blocks in
    these pools."""

    size: int
    pools: int
    used: int
    free: int


@dataclass(frozen=True)
class PoolsSample:
    """The figures of Python's own allocator: its arenas (mimalloc: segments), their bytes, and its pools (mimalloc:
    pages).

    ``pools`` counts pools with blocks, ``free_pools`` pools without. ``classes``: the pools' figures by
    block size; None if the pools were not read for this sample. ``odd``: the number of pools that are not counted,
    because they changed while they were read."""

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
        """The bytes of the blocks in use; None if the pools were not read this time."""
        return None if self.classes is None else sum(row.size * row.used for row in self.classes)


@dataclass(frozen=True)
class Sample:
    """The figures of one process at one moment; sizes in bytes.

    ``rss`` is exact if ``pss`` is known, otherwise it is exact to within a few hundred KiB; ``stopped``: for how many
    seconds the process was stopped for this sample, None if it was not stopped."""

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
        """Whether any figure of the sample is doubtful."""
        return (self.malloc is not None and self.malloc.is_doubtful) or (self.pools is not None and self.pools.doubtful)


@dataclass(frozen=True)
class SeriesEvent:
    """An event of a series. ``kind`` has one of these values.

    "start": the first sample of the process follows. ``target`` describes the process; ``program`` is its name, as in
    ps and top.
    "exec": the process now runs another program.
    "found": gdbheap found another allocator of the process.
    "end": the process ended, with its exit ``status`` if gdbheap started it as a command.
    "snapshot": a snapshot was written to ``path``. The process was stopped for ``seconds`` meanwhile.
    "failed": a read, a stop or a snapshot failed, for this ``reason``.
    "close": the last event.
    """

    time: float
    offset: float
    kind: str
    pid: int | None = None
    target: dict[str, Any] | None = None
    path: str | None = None
    seconds: float | None = None
    status: int | None = None
    reason: str | None = None
    program: str | None = None


@dataclass(frozen=True)
class Series:
    """The contents of a series file.

    ``every``: seconds between two samples of a process.
    ``stop``: whether each process was stopped for each sample.
    ``cut``: whether the last line was incomplete, as after a kill or on a full disk. That line is left out.
    """

    time: float
    version: str
    every: float
    stop: bool = False
    host: str | None = None
    boot_id: str | None = None
    samples: list[Sample] = field(default_factory=list)
    events: list[SeriesEvent] = field(default_factory=list)
    cut: bool = False
