"""The metrics that ``gdbheap watch --prometheus`` serves: their names, meanings and current values.

The names follow prometheus.io/docs/practices/naming: base units, and ``_total`` for counters. The labels are ``pid``,
``program`` (the process's name when watching began) and ids that gdbheap defines. So a process has one series for each
line of its ledger and for each finding. After it has ended, it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Optional

from gdbheap import __version__
from gdbheap.dataclass import dataclass
from gdbheap.watching.heap_figures import HeapFigures, WatchedHeap
from gdbheap.watching.watcher import GroupState

__all__ = ["COUNTER", "GAUGE", "METRICS", "Metric", "Now"]

GAUGE, COUNTER = "gauge", "counter"
OF_PROCESS = ("pid", "program")
# The label of the machine. Names of control groups begin with a slash.
MACHINE = "machine"
# The labels of metrics that are summed for each service, instead of OF_PROCESS.
OF_SERVICE = ("program", "service", "container", "pod")
Combine = Callable[[Iterable[float]], float]
Values = Iterable[tuple[tuple[str, ...], Optional[float]]]


@dataclass(frozen=True)
class Now:
    """The state of a watch, which the metrics describe.

    ``processes``: each process with its current RSS in bytes.
    ``ended``: how many processes have ended.
    ``acted``, ``failed``: how often the watch acted, and how often something failed.
    ``killed``: how many processes the OOM killer killed.
    ``scan_age``: how many seconds ago processes were last searched for.
    ``groups``: the memory of the processes' control groups and of the machine.
    ``is_summed``: whether to sum the processes of a service.
    ``gone``: for each service, the counts of its processes that have ended.
    """

    processes: Sequence[tuple[WatchedHeap, int]]
    ended: int = 0
    acted: int = 0
    failed: int = 0
    killed: int = 0
    scan_age: float | None = None
    groups: Sequence[GroupState] = ()
    is_summed: bool = False
    gone: Sequence[WatchedHeap] = ()


@dataclass(frozen=True)
class Metric:
    """A metric and how to compute it.

    ``kind``: GAUGE or COUNTER.
    ``values``: a function that returns pairs: the values of the labels, and the metric's value (None if unknown).
    ``combine``: merges the values of several processes into one.
    """

    name: str
    meaning: str
    kind: str
    labels: tuple[str, ...]
    values: Callable[[Now], Values]
    combine: Combine = sum

    def labels_in(self, now: Now) -> tuple[str, ...]:
        """Return the names of the labels. If the metric is summed, these name a service instead of a process."""
        return (*OF_SERVICE, *self.labels[len(OF_PROCESS) :]) if self._is_summed(now) else self.labels

    def _is_summed(self, now: Now) -> bool:
        return now.is_summed and self.labels[: len(OF_PROCESS)] == OF_PROCESS

    def rows(self, now: Now) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield (the labels' values, the metric's value) for each known value. If the metric is summed, the values of
        all processes of a service are combined.
        """
        if not self._is_summed(now):
            yield from ((labels, float(value)) for labels, value in self.values(now) if value is not None)
            return
        # The processes that have ended get ids that no process has.
        gone = [replace(seen, pid=-number) for number, seen in enumerate(now.gone, 1)] if self.kind == COUNTER else []
        everybody = [*now.processes, *((seen, 0) for seen in gone)]
        services = {str(seen.pid): (seen.name, *seen.service) for seen, _ in everybody}
        found: dict[tuple[str, ...], list[float]] = {}
        for labels, value in self.values(replace(now, processes=everybody)):
            if value is not None:
                found.setdefault((*services[labels[0]], *labels[len(OF_PROCESS) :]), []).append(float(value))
        yield from ((labels, self.combine(values)) for labels, values in found.items())


def _of_group(name: str, meaning: str, kind: str, value: Callable[[GroupState], float | None]) -> Metric:
    rows = lambda now: [((group.name or MACHINE,), value(group)) for group in now.groups]  # noqa: E731
    return Metric(name, meaning, kind, ("group",), rows)


def _of_watch(name: str, meaning: str, kind: str, value: Callable[[Now], float | None]) -> Metric:
    return Metric(name, meaning, kind, (), lambda now: [((), value(now))])


def _labels(seen: WatchedHeap) -> tuple[str, str]:
    return str(seen.pid), seen.name


def _of_process(
    name: str, meaning: str, kind: str, value: Callable[[WatchedHeap], float | None], combine: Combine = sum
) -> Metric:
    rows = lambda now: [(_labels(seen), value(seen)) for seen, _ in now.processes]  # noqa: E731
    return Metric(name, meaning, kind, OF_PROCESS, rows, combine)


def _of_look(name: str, meaning: str, value: Callable[[HeapFigures], float | None], combine: Combine = sum) -> Metric:
    figure = lambda seen: None if seen.figures is None else value(seen.figures)  # noqa: E731
    return _of_process(name, meaning, GAUGE, figure, combine)


def _by_id(name: str, meaning: str, label: str, values: Callable[[HeapFigures], Mapping[str, int]]) -> Metric:
    def rows(now: Now) -> Iterator[tuple[tuple[str, ...], float]]:
        for seen, _ in now.processes:
            found = {} if seen.figures is None else values(seen.figures)
            yield from (((*_labels(seen), key), size) for key, size in found.items())

    return Metric(name, meaning, GAUGE, (*OF_PROCESS, label), rows)


METRICS = (
    Metric(
        "gdbheap_processes", "Number of processes that a sum consists of (--prometheus-sum).", GAUGE, OF_PROCESS,
        lambda now: [(_labels(seen), 1) for seen, _ in now.processes] if now.is_summed else [],
    ),
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
    _by_id("gdbheap_ledger_resident_bytes", "Resident bytes of each line of the ledger; the line with the id A.B is a"
           " part of the line A.", "line", lambda found: found.lines),
    _by_id("gdbheap_finding_bytes", "Bytes of each finding, by its id.", "finding",
           lambda found: found.findings),
    _of_look("gdbheap_look_partial", "1 if the last reading of the heap lacks data, else 0.",
             lambda found: found.partial, max),
    _of_look("gdbheap_look_stop_seconds", "Seconds for which the last reading of the heap stopped the process.",
             lambda found: found.held, max),
    _of_process("gdbheap_look_timestamp_seconds", "Time when the heap was last read, in seconds since 1970.", GAUGE,
                lambda seen: seen.time, min),
    _of_process("gdbheap_looks_total", "Number of readings of the heap.", COUNTER, lambda seen: seen.reads),
    _of_process("gdbheap_look_errors_total", "Number of readings of the heap that failed.", COUNTER,
                lambda seen: seen.errors),
    _of_process("gdbheap_stopped_seconds_total", "Seconds for which readings and actions of the watch stopped the"
                " process, in total.", COUNTER, lambda seen: seen.held),
    _of_watch("gdbheap_watch_processes", "Number of watched processes.", GAUGE, lambda now: len(now.processes)),
    _of_watch("gdbheap_watch_ended_total", "Number of watched processes that ended.", COUNTER, lambda now: now.ended),
    _of_watch("gdbheap_watch_acted_total", "Number of times the watch acted.", COUNTER, lambda now: now.acted),
    _of_watch("gdbheap_watch_failed_total", "Number of reported errors.", COUNTER, lambda now: now.failed),
    _of_watch("gdbheap_watch_killed_total", "Number of watched processes that ended by SIGKILL while the kernel's"
              " OOM killer was at work.", COUNTER, lambda now: now.killed),
    _of_watch("gdbheap_watch_scan_age_seconds", "Seconds since processes were last searched for.", GAUGE,
              lambda now: now.scan_age),
    _of_group("gdbheap_group_needed_bytes", "Bytes that the control group uses and that the kernel cannot reclaim.",
              GAUGE, lambda group: group.needed),
    _of_group("gdbheap_group_limit_bytes", "The limit of the control group in bytes.", GAUGE,
              lambda group: group.limit),
    _of_group("gdbheap_group_mark_bytes", "Bytes above which the group counts as near its limit (--mark).", GAUGE,
              lambda group: group.mark),
    _of_group("gdbheap_group_seconds_to_limit", "Seconds until the limit is reached at the rate of the last two"
              " seconds; missing while the group does not grow.", GAUGE, lambda group: group.seconds),
    _of_group("gdbheap_group_kills_total", "Number of processes that the kernel has killed in the control group, which"
              " was out of memory.", COUNTER, lambda group: group.kills),
    Metric("gdbheap_build_info", "The version of gdbheap.", GAUGE, ("version",), lambda now: [((__version__,), 1)]),
)  # fmt: skip
