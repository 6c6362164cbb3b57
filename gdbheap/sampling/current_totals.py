"""The current figures of many processes, and the changes since the first sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any

from gdbheap.dataclass import dataclass
from gdbheap.sampling.sample import Sample
from gdbheap.sampling.sampler import Sampler

__all__ = ["Standing", "StandingSum", "Standings", "CurrentTable"]


@dataclass(frozen=True)
class Standing:
    """The current figures of one process, in bytes.

    ``growth``: the change of RSS since the first sample of the process; ``seconds``: the time since this sample. A
    figure that could not be read this time keeps its last known value."""

    pid: int
    program: str
    rss: int | None
    growth: int | None
    seconds: float
    swapped: int | None
    system: int | None
    in_use: int | None
    pool_arenas: int | None
    pool_used: int | None

    @property
    def idle(self) -> int | None:
        """Bytes that malloc has from the kernel but that the program does not use; None if unknown."""
        return None if self.system is None or self.in_use is None else max(0, self.system - self.in_use)


@dataclass(frozen=True)
class StandingSum:
    """The number of processes, and the sums of their figures in bytes. Unknown figures count as 0."""

    processes: int
    rss: int
    growth: int
    swapped: int


@dataclass(frozen=True)
class CurrentTable:
    """The answer of ``gdbheap top`` at one moment: a row for each process, and their sums."""

    time: float
    rows: list[Standing]
    total: StandingSum
    refused: int = 0
    left_out: list[str] = field(default_factory=list)
    smaller: int = 0

    @property
    def targets(self) -> list[dict[str, Any]]:
        """The processes of the rows, as a JSON document names them."""
        return [{"kind": "process", "pid": row.pid} for row in self.rows]

    @property
    def ok(self) -> bool:
        """Whether every wanted process could be read."""
        return not self.refused


class Standings:
    """Samples the processes repeatedly, and makes a table of their current figures each time."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self._first: dict[int, Sample] = {}
        self._last: dict[int, Standing] = {}
        self._names: dict[int, str] = {}

    def take(self) -> CurrentTable:
        """Sample the processes and return their table. The rows are not sorted."""
        samples = [row for row in self.sampler.take() if isinstance(row, Sample)]
        here = {sample.pid for sample in samples}
        for kept in (self._first, self._last, self._names):
            for pid in set(kept) - here:
                del kept[pid]
        rows = list(self._rows(samples))
        known = [[getattr(row, name) or 0 for row in rows] for name in ("rss", "growth", "swapped")]
        rss, growth, swap = (sum(column) for column in known)
        total = StandingSum(len(rows), rss, growth, swap)
        sampler = self.sampler
        return CurrentTable(
            round(sampler.moment.time, 6), rows, total, sampler.left_out, sampler.reasons, sampler.smaller
        )

    def _rows(self, samples: list[Sample]) -> Iterator[Standing]:
        for sample in samples:
            first, before = self._first.setdefault(sample.pid, sample), self._last.get(sample.pid)
            row = self._standing(sample, first)
            if before is not None:
                names = ("in_use", "pool_arenas", "pool_used")
                row = replace(row, **{name: getattr(before, name) for name in names if getattr(row, name) is None})
            self._last[sample.pid] = row
            yield row

    def _standing(self, sample: Sample, first: Sample) -> Standing:
        malloc, pools = sample.malloc, sample.pools
        growth = None if sample.rss is None or first.rss is None else sample.rss - first.rss
        return Standing(
            sample.pid, self._name(sample.pid), sample.rss, growth, round(sample.offset - first.offset, 3), sample.swap,
            malloc.system if malloc else None, malloc.in_use if malloc else None,
            pools.bytes if pools else None, pools.used if pools else None,
        )  # fmt: skip

    def _name(self, pid: int) -> str:
        """Return the program's name, from its executable or else from the kernel. After an exec it is the new program's
        name.
        """
        watched = self.sampler.watched.get(pid)
        if watched is not None:
            self._names[pid] = watched.program
        return self._names.get(pid, "")
