"""Sample many processes in rounds, and include new ones as they appear."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Union

from gdbheap.errors import GdbheapError, NoTarget, NotPermitted, reason_of
from gdbheap.host.usage import Usage
from gdbheap.refusals import refusal
from gdbheap.sampling.sample import Sample, SeriesEvent
from gdbheap.sampling.sampled_process import Pacer, SampledProcess, SampleTime
from gdbheap.targets.chosen_processes import Programs
from gdbheap.targets.stopping import when_untraced

__all__ = ["Row", "Sampler"]

Row = Union[Sample, SeriesEvent]
SEARCH_SHARE = 0.02
REASONS = 3


class Sampler:
    """The processes to sample.

    ``stop``: stop each process for each sample, for at most ``limit`` seconds. ``look_seconds``: for how many seconds a
    round may search new processes for allocators; processes that it does not reach are searched in the next round.
    ``failed``: whether any process could not be read.
    """

    def __init__(
        self, programs: Programs, stop: bool = False, limit: float | None = None, look_seconds: float = 1.0
    ) -> None:
        self._look_seconds, self._no_look_after = look_seconds, 0.0
        self._programs, self._stop, self._limit = programs, stop, limit
        self._began = time.monotonic()
        self._search = Pacer(SEARCH_SHARE)
        self._meant: list[int] = []
        self._over: set[int] = set()
        self._refused: dict[int, str] = {}
        self.watched: dict[int, SampledProcess] = {}
        self.failed = False

    @property
    def left_out(self) -> int:
        """The number of wanted processes that cannot be sampled."""
        return len(self._refused)

    @property
    def smaller(self) -> int:
        """The number of the user's processes that are not sampled, because they are not among the largest."""
        return self._programs.smaller

    @property
    def reasons(self) -> list[str]:
        """The first few distinct reasons why processes cannot be sampled."""
        return list(dict.fromkeys(self._refused.values()))[:REASONS]

    @property
    def moment(self) -> SampleTime:
        """The current time, in seconds since 1970 and since the sampler was made."""
        return SampleTime(time.time(), time.monotonic() - self._began)

    @property
    def is_over(self) -> bool:
        """Whether no process is left and no new one can appear."""
        return not self.watched and not self._programs.may_come

    def event(self, kind: str, pid: int | None = None, **known: object) -> SeriesEvent:
        """Return an event with the current time. ``known``: further fields of the event."""
        time_, offset = self.moment
        return SeriesEvent(round(time_, 6), round(offset, 6), kind, pid, **known)  # type: ignore[arg-type]

    def check(self) -> None:
        """Open the processes that were given by their ids. Raises NoTarget, NotPermitted, Unsupported if one cannot be
        sampled."""
        for pid in self._programs.pids:
            folder = self._programs.folder(pid)
            try:
                self.watched[pid] = when_untraced(folder, partial(SampledProcess, folder, self._limit))
            except NotPermitted:
                if not refusal.other_tracer(folder):
                    raise
                # Only the kernel's figures can be sampled as long as another program traces the process.
                self.watched[pid] = SampledProcess(folder, self._limit, may_be_traced=True)

    def take(self) -> Iterator[Row]:
        """Yield the rows of one round: a sample of each process, and the events since the last round."""
        yield from self._join()
        self._no_look_after = time.monotonic() + self._look_seconds
        for pid, watched in list(self.watched.items()):
            try:
                yield from self._rows(watched)
            except NoTarget:
                del self.watched[pid]
                self._over.add(pid)
                yield self.event("end", pid)
            except Exception as error:
                del self.watched[pid]
                yield self._give_up(pid, error)

    def _join(self) -> Iterator[SeriesEvent]:
        """Search for new processes to sample. Yield an event for each process that cannot be sampled."""
        if self._search.is_due:
            self._meant = self._search.do(self._programs.now)
            self._over.intersection_update(self._programs.pids)
            self._refused = {pid: self._refused[pid] for pid in self._meant if pid in self._refused}
        for pid in self._meant:
            if pid in self.watched or pid in self._over or pid in self._refused:
                continue
            try:
                folder = self._programs.folder(pid)
            except NoTarget:
                self._over.add(pid)
                continue
            except Exception as error:
                yield self._give_up(pid, error)
                continue
            try:
                self.watched[pid] = SampledProcess(folder, self._limit, may_be_traced=True)
            except NoTarget as error:
                # A process whose first thread has ended cannot be read, but still runs.
                if folder.is_running():
                    yield self._give_up(pid, error)
                else:
                    self._over.add(pid)
            except Exception as error:
                yield self._give_up(pid, error)

    def _rows(self, watched: SampledProcess) -> Iterator[Row]:
        """Yield the rows of one process. Raises NoTarget.

        The process is sampled before the first row is yielded, because whoever reads the row "start" or "found" may end
        the process.
        """
        rows: list[Row] = []
        try:
            usage = watched.usage()
            rows += self._news(watched, usage)
            rows += self._samples(watched, watched.usage() if rows else usage)
        finally:
            yield from rows

    def _news(self, watched: SampledProcess, usage: Usage) -> Iterator[SeriesEvent]:
        kind = watched.look(usage) if time.monotonic() < self._no_look_after else None
        if kind is not None and watched.found is not None:
            yield self.event(kind, watched.pid, target=watched.found.target, program=watched.program)
            if watched.refused is not None:
                self.failed = True
                yield self.event("failed", watched.pid, reason=watched.refused)

    def _samples(self, watched: SampledProcess, usage: Usage) -> Iterator[Row]:
        try:
            yield watched.sample(self.moment, usage, self._stop)
        except NoTarget:
            raise
        except GdbheapError as error:
            yield self._failed(watched.pid, error)
            yield watched.sample(self.moment, usage)

    def _give_up(self, pid: int, error: Exception) -> SeriesEvent:
        """Record why a process cannot be sampled, and return the event. The process is reported only once, and skipped
        as long as it is one of the wanted processes."""
        self._refused[pid] = reason_of(error)
        return self._failed(pid, error)

    def _failed(self, pid: int, error: Exception) -> SeriesEvent:
        self.failed = True
        return self.event("failed", pid, reason=reason_of(error))
