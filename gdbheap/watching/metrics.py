"""The metrics that ``gdbheap watch --prometheus`` serves: the name of each, its meaning, and its current values.

Names follow prometheus.io/docs/practices/naming: base units, and ``_total`` for counters. The labels are ``pid``,
``program`` (the process's name when watching began) and gdbheap's own ids. So a process has as many series as its
ledger has lines and findings, and none once it has ended."""

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
    """The state of a watch: its processes with their current RSS in bytes, how many have ended, how often it acted, and
    how often something failed."""

    processes: Sequence[tuple[Seen, int]]
    ended: int = 0
    acted: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Metric:
    """A metric and how to compute it. ``kind``: GAUGE or COUNTER; ``values``: pairs of the labels' values and a value,
    None if it is not known."""

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
        "gdbheap_resident_bytes", "RSS, when it is asked for.", GAUGE, OF_PROCESS,
        lambda now: [(_labels(seen), size) for seen, size in now.processes],
    ),
    _of_look("gdbheap_look_resident_bytes", "RSS at the last look.", lambda found: found.resident),
    _of_look("gdbheap_proportional_bytes", "PSS at the last look: each page divided by the number of processes that"
             " have it.", lambda found: found.proportional),
    _of_look("gdbheap_swapped_bytes", "Swapped memory at the last look.", lambda found: found.swapped),
    _of_look("gdbheap_in_use_bytes", "Blocks that the program has in use.", lambda found: found.used),
    _of_look("gdbheap_in_use_resident_bytes", "The resident part of blocks in use.", lambda found: found.used_resident),
    _of_look("gdbheap_free_bytes", "Free blocks and what allocators hold in reserve.", lambda found: found.free),
    _of_look("gdbheap_free_resident_bytes", "The resident part of what is free.", lambda found: found.free_resident),
    _of_look("gdbheap_trimmable_bytes", "What malloc_trim(0) would give back.", lambda found: found.trimmable),
    _of_look("gdbheap_pinned_bytes", "What would go if the blocks that pin pages were gone (heap pins).",
             lambda found: found.pinned),
    _by_id("gdbheap_kept_bytes", "What is free and resident and stays after malloc_trim(0), by why.", "reason",
           lambda found: found.kept),
    _by_id("gdbheap_ledger_resident_bytes", "Resident bytes by the line of the ledger; one with a dot in its id is part"
           " of the line before the dot.", "line", lambda found: found.lines),
    _by_id("gdbheap_finding_bytes", "What the findings are about, by their ids.", "finding",
           lambda found: found.findings),
    _of_look("gdbheap_look_partial", "Whether something is missing in the last look.", lambda found: found.partial),
    _of_look("gdbheap_look_stop_seconds", "For how long the process stood still for the last look.",
             lambda found: found.held),
    _of_process("gdbheap_look_timestamp_seconds", "When the last look was taken, in seconds since 1970.", GAUGE,
                lambda seen: seen.time),
    _of_process("gdbheap_looks_total", "How often it was looked at.", COUNTER, lambda seen: seen.looks),
    _of_process("gdbheap_look_errors_total", "How many of these looks failed.", COUNTER, lambda seen: seen.errors),
    _of_process("gdbheap_stopped_seconds_total", "For how long the process stood still, by looks and by what was done"
                " when the moment had come.", COUNTER, lambda seen: seen.held),
    _of_watch("gdbheap_watch_processes", "How many processes are watched.", GAUGE, lambda now: len(now.processes)),
    _of_watch("gdbheap_watch_ended_total", "How many watched processes have ended.", COUNTER, lambda now: now.ended),
    _of_watch("gdbheap_watch_acted_total", "How often the watch has acted.", COUNTER, lambda now: now.acted),
    _of_watch("gdbheap_watch_failed_total", "How often something failed.", COUNTER, lambda now: now.failed),
    Metric("gdbheap_build_info", "The version of gdbheap.", GAUGE, ("version",), lambda now: [((__version__,), 1)]),
)  # fmt: skip


def values_of(metric: Metric, now: Now) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the known values of a metric, with the values of its labels."""
    yield from ((labels, float(value)) for labels, value in metric.values(now) if value is not None)
