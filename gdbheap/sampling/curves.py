"""Series as curves: the figures of each process over time, with the first, last and highest value of each figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Callable

from gdbheap.dataclass import dataclass
from gdbheap.sampling.sample import Sample, Series, SeriesEvent

__all__ = ["Curve", "CurveRange", "Plotted", "ProcessCurves", "curves_of", "extents_of", "joined", "largest"]

MAX_PANELS = 12
SHOWN = ("snapshot", "exec", "failed", "end")
FIGURES: dict[str, Callable[[Sample], int | None]] = {
    "rss": lambda sample: sample.rss,
    "system": lambda sample: sample.malloc.system if sample.malloc else None,
    "in_use": lambda sample: sample.malloc.in_use if sample.malloc else None,
    "pool_bytes": lambda sample: sample.pools.bytes if sample.pools else None,
    "pool_used": lambda sample: sample.pools.used if sample.pools else None,
}


@dataclass(frozen=True)
class Curve:
    """A figure of a process over time. ``values``: its known values in bytes; ``times``: the times of these values in
    seconds since 1970, ascending."""

    name: str
    times: list[float] = field(default_factory=list)
    values: list[int] = field(default_factory=list)

    def at(self, times: Iterable[float]) -> Iterator[float]:
        """Yield the value at each of the given times, by linear interpolation.

        The times must ascend and lie within the curve.
        """
        place = 0
        for time in times:
            while place + 2 < len(self.times) and self.times[place + 1] <= time:
                place += 1
            before, after = self.times[place], self.times[min(place + 1, len(self.times) - 1)]
            share = (time - before) / (after - before) if after > before else 0.0
            first, last = self.values[place], self.values[min(place + 1, len(self.values) - 1)]
            yield first + (last - first) * share


@dataclass(frozen=True)
class ProcessCurves:
    """The curves and events of one process in one file, or in several files (``joined``). ``program``: its name, as in
    ps and top, "" if unknown; ``curves``: the curves that have values, by name; ``identity``: its machine's boot, its
    id and its start, None if unknown."""

    file: str
    pid: int
    exe: str | None
    program: str
    curves: dict[str, Curve]
    events: list[SeriesEvent]
    identity: tuple[str, int, int] | None = None

    @property
    def began(self) -> float:
        """The time of the first value, in seconds since 1970."""
        return min((curve.times[0] for curve in self.curves.values()), default=0.0)

    @property
    def peak(self) -> int:
        """The highest value of any curve, in bytes."""
        return max((max(curve.values) for curve in self.curves.values()), default=0)


@dataclass(frozen=True)
class CurveRange:
    """The first, last and highest value of one figure of a process, in bytes.

    ``figure``: rss, system and in_use (of malloc), pool_bytes and pool_used (of Python's own allocator); ``peak_time``:
    seconds since 1970."""

    file: str
    pid: int
    exe: str | None
    program: str
    figure: str
    samples: int
    first: int
    last: int
    peak: int
    peak_time: float


@dataclass(frozen=True)
class Plotted:
    """The answer of ``gdbheap plot``: the picture that was written, and the first, last and highest value of each
    curve."""

    file: str
    size: int
    rows: list[CurveRange]
    not_drawn: int = 0
    cut: list[str] = field(default_factory=list)


def curves_of(series: Series, file: str) -> list[ProcessCurves]:
    """Return the curves of the processes of a series, in the order in which the processes appeared."""
    found: dict[int, dict[str, Curve]] = {}
    for sample in series.samples:
        curves = found.setdefault(sample.pid, {})
        for name, figure in FIGURES.items():
            value = figure(sample)
            if value is not None:
                curve = curves.setdefault(name, Curve(name))
                curve.times.append(sample.time)
                curve.values.append(value)
    events: dict[int | None, list[SeriesEvent]] = {}
    for event in series.events:
        events.setdefault(event.pid, []).append(event)
    return [_process(file, pid, curves, events.get(pid, [])) for pid, curves in found.items()]


def joined(processes: Sequence[ProcessCurves]) -> list[ProcessCurves]:
    """Return the processes with the curves of each process as one, even if several files have parts of them: the files
    of a recording that began new files, in any order. The earliest file counts as the file of the process."""
    parts: dict[object, list[ProcessCurves]] = {}
    for number, process in enumerate(processes):
        parts.setdefault(process.identity or number, []).append(process)
    return [_joined(some) if len(some) > 1 else some[0] for some in parts.values()]


def _joined(parts: list[ProcessCurves]) -> ProcessCurves:
    parts = sorted(parts, key=lambda part: part.began)
    curves = {}
    for name in FIGURES:
        # A file and its compressed copy have the same values.
        values = {
            time: value for part in parts if name in part.curves
            for time, value in zip(part.curves[name].times, part.curves[name].values)
        }  # fmt: skip
        if times := sorted(values):
            curves[name] = Curve(name, times, [values[time] for time in times])
    events = {(event.kind, event.time): event for part in parts for event in part.events}
    last = parts[-1]
    return replace(last, file=parts[0].file, curves=curves, events=[*events.values()])


def _process(file: str, pid: int, curves: dict[str, Curve], events: list[SeriesEvent]) -> ProcessCurves:
    exes = [event.target.get("exe") for event in events if event.target]
    exe = exes[-1] if exes else None
    # A recording of an older version has no names. The last name counts, as after an exec.
    names = [event.program for event in events if event.program is not None]
    program = names[-1] if names else (exe or "").rsplit("/", 1)[-1]
    starts = [(event.target.get("boot_id"), event.target.get("start_time")) for event in events if event.target]
    boot, start = starts[-1] if starts else (None, None)
    identity = None if boot is None or start is None else (boot, pid, start)
    return ProcessCurves(file, pid, exe, program, curves, [e for e in events if e.kind in SHOWN], identity)


def extents_of(process: ProcessCurves) -> Iterator[CurveRange]:
    """Yield one row for each curve of a process."""
    for name, curve in process.curves.items():
        peak = max(curve.values)
        when = curve.times[curve.values.index(peak)]
        ends = curve.values[0], curve.values[-1]
        yield CurveRange(
            process.file, process.pid, process.exe, process.program, name, len(curve.values), *ends, peak, when
        )


def largest(processes: Sequence[ProcessCurves]) -> list[ProcessCurves]:
    """Return the MAX_PANELS processes with the highest peaks, in their original order."""
    found = sorted(processes, key=lambda process: -process.peak)[:MAX_PANELS]
    return [process for process in processes if process in found]
