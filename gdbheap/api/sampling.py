"""Sample a process over time, at even intervals, while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from gdbheap.api.arguments import Seconds, Target, seconds_of
from gdbheap.api.opening import meant
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.sampling.sample import Sample as Sampled
from gdbheap.sampling.sampler import Sampler
from gdbheap.targets.chosen_processes import Programs

__all__ = ["Sample", "sample"]

LEAST_SECONDS = 0.001
LEAST_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Sample:
    """A process at one moment; sizes in bytes.

    ``time``: seconds since 1970.
    ``seconds``: seconds since the first sample.
    ``in_use``: the bytes that the C library's malloc has handed out, None if unknown.
    ``system``: the bytes that malloc got from the kernel, None if unknown.
    ``doubtful``: whether a figure changed while the sample was taken.
    """

    time: float
    seconds: float
    rss: int | None
    anonymous: int | None
    file: int | None
    shared: int | None
    swapped: int | None
    in_use: int | None
    system: int | None
    threads: int
    doubtful: bool


def sample(target: Target, every: Seconds = 1, duration: Seconds | None = None, stop: bool = False) -> Iterator[Sample]:
    """Sample a process every ``every`` (seconds, or "2s"), until it ends or ``duration`` has passed.

    If ``stop`` is true, the process is stopped for each sample, and malloc's bytes in use are exact. Otherwise the
    process is not stopped. Raises NoTarget, NotPermitted and UsageError at once, before the first sample is requested.
    """
    process, between = meant(target), seconds_of(every)
    if isinstance(process, str):
        raise UsageError(f"{process} is not a process: only a running process can be sampled")
    if between < LEAST_SECONDS:
        raise UsageError("every: the time between two samples must be at least 1ms")
    until = None if duration is None else seconds_of(duration)
    sampler = Sampler(Programs([process]), stop, None, max(between, LEAST_LOOK_SECONDS))
    sampler.check()
    return _samples(sampler, between, until)


def _samples(sampler: Sampler, every: float, duration: float | None) -> Iterator[Sample]:
    began: float | None = None
    number = 0
    while True:
        for row in sampler.take():
            if isinstance(row, Sampled):
                began = row.offset if began is None else began
                yield _sample(row, row.offset - began)
        now = sampler.moment.offset
        if sampler.is_over or began is None:
            return
        # If a sample took long, the next one is taken at its own regular time.
        number = max(number + 1, int((now - began) / every) + 1)
        if duration is not None and number * every > duration:
            return
        time.sleep(max(0.0, began + number * every - now))


def _sample(row: Sampled, seconds: float) -> Sample:
    malloc = row.malloc
    in_use, system = (None, None) if malloc is None else (malloc.in_use, malloc.system)
    return Sample(
        row.time, seconds, row.rss, row.anonymous, row.file, row.shared, row.swap, in_use, system, row.threads,
        row.doubtful,
    )  # fmt: skip
