"""The metrics that ``gdbheap watch --prometheus`` serves: their names, meanings and current values.

The names follow prometheus.io/docs/practices/naming: base units, and ``_total`` for counters. The labels are ``pid``,
``program`` (the process's name when watching began) and ids that gdbheap defines. So a process has one series for each
line and finding of its ledger, and none once it has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from gdbheap import __version__
from gdbheap.watching.heap_figures import Figures, Seen

__all__ = ["COUNTER", "GAUGE", "METRICS", "Metric", "Now", "values_of"]

GAUGE, COUNTER = "gauge", "counter"
OF_PROCESS = ("pid", "program")
Values = Iterable[tuple[tuple[str, ...], Optional[float]]]


@dataclass(frozen=True)
class Now:
    """The state of a watch: each process with its current RSS in bytes, how many processes have ended, how often the
    watch acted, and how often something failed."""

    processes: Sequence[tuple[Seen, int]]
    ended: int = 0
    acted: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Metric:
    """A metric and how to compute it.

    ``kind``: GAUGE or COUNTER; ``values``: returns pairs of the labels' values and the metric's value, which is None if
    unknown."""

    name: str
    meaning: str
    kind: str
    labels: tuple[str, ...]
    values: Callable[[Now], Values]


def _of_watch(name: str, meaning: str, kind: str, value: Callable[[Now], float]) -> Metric:
    return Metric(name, meaning, kind, (), lambda now: [((), value(now))])


def _labels(seen: Seen) -> tuple[str, str]:
    return str(seen.pid), seen.name


def _of_process(name: str, meaning: str, kind: str, value: Callable[[Seen], float | None]) -> Metric:
    return Metric(
        name, meaning, kind, OF_PROCESS, lambda now: [(_labels(seen), value(seen)) for seen, _ in now.processes]
    )


def _of_look(name: str, meaning: str, value: Callable[[Figures], float | None]) -> Metric:
    return _of_process(name, meaning, GAUGE, lambda seen: None if seen.figures is None else value(seen.figures))


def _by_id(name: str, meaning: str, label: str, values: Callable[[Figures], Mapping[str, int]]) -> Metric:
    def rows(now: Now) -> Iterator[tuple[tuple[str, ...], float]]:
        for seen, _ in now.processes:
            found = {} if seen.figures is None else values(seen.figures)
            yield from (((*_labels(seen), key), size) for key, size in found.items())

    return Metric(name, meaning, GAUGE, (*OF_PROCESS, label), rows)


METRICS = (
    Metric(
        "gdbheap_resident_bytes", "RSS of the process at the time of the request.", GAUGE, OF_PROCESS,
        lambda now: [(_labels(seen), size) for seen, size in now.processes],
    ),
    _of_look("gdbheap_look_resident_bytes", "RSS at the last reading of the heap.", lambda found: found.resident),
    _of_look("gdbheap_proportional_bytes", "PSS at the last reading of the heap: each page is divided by the number of"
             " processes that map it.", lambda found: found.proportional),
    _of_look("gdbheap_swapped_bytes", "Bytes in swap at the last reading of the heap.", lambda found: found.swapped),
    _of_look("gdbheap_in_use_bytes", "Bytes of the blocks in use by the program.", lambda found: found.used),
    _of_look("gdbheap_in_use_resident_bytes", "The resident part of blocks in use.", lambda found: found.used_resident),
    _of_look("gdbheap_free_bytes", "Bytes of free blocks and of the allocators' reserves.", lambda found: found.free),
    _of_look("gdbheap_free_resident_bytes", "The resident part of free blocks and reserves.",
             lambda found: found.free_resident),
    _of_look("gdbheap_trimmable_bytes", "Bytes that malloc_trim(0) would return.", lambda found: found.trimmable),
    _of_look("gdbheap_pinned_bytes", "Bytes that would be freed without the blocks that pin pages (heap pins).",
             lambda found: found.pinned),
    _by_id("gdbheap_kept_bytes", "Free resident bytes that malloc_trim(0) cannot return, by reason.", "reason",
           lambda found: found.kept),
    _by_id("gdbheap_ledger_resident_bytes", "Resident bytes of each line of the ledger; a line with a dot in its id is"
           " part of the line before the dot.", "line", lambda found: found.lines),
    _by_id("gdbheap_finding_bytes", "Bytes of each finding, by its id.", "finding",
           lambda found: found.findings),
    _of_look("gdbheap_look_partial", "1 if the last reading of the heap lacks data, else 0.",
             lambda found: found.partial),
    _of_look("gdbheap_look_stop_seconds", "Seconds for which the last reading of the heap stopped the process.",
             lambda found: found.held),
    _of_process("gdbheap_look_timestamp_seconds", "Time when the heap was last read, in seconds since 1970.", GAUGE,
                lambda seen: seen.time),
    _of_process("gdbheap_looks_total", "Number of readings of the heap.", COUNTER, lambda seen: seen.looks),
    _of_process("gdbheap_look_errors_total", "Number of readings of the heap that failed.", COUNTER,
                lambda seen: seen.errors),
    _of_process("gdbheap_stopped_seconds_total", "Seconds for which readings and actions of the watch stopped the"
                " process, in total.", COUNTER, lambda seen: seen.held),
    _of_watch("gdbheap_watch_processes", "Number of watched processes.", GAUGE, lambda now: len(now.processes)),
    _of_watch("gdbheap_watch_ended_total", "Number of watched processes that ended.", COUNTER, lambda now: now.ended),
    _of_watch("gdbheap_watch_acted_total", "Number of times the watch acted.", COUNTER, lambda now: now.acted),
    _of_watch("gdbheap_watch_failed_total", "Number of reported errors.", COUNTER, lambda now: now.failed),
    Metric("gdbheap_build_info", "The version of gdbheap.", GAUGE, ("version",), lambda now: [((__version__,), 1)]),
)  # fmt: skip


def values_of(metric: Metric, now: Now) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the known values of a metric, each after the values of its labels."""
    yield from ((labels, float(value)) for labels, value in metric.values(now) if value is not None)
