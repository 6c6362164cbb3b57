"""Record a series: rounds of samples at regular times, and snapshots, until the recording is over."""

from __future__ import annotations

import math
import os
import select
import time
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Literal

from gdbheap import __version__
from gdbheap.dataclass import dataclass
from gdbheap.errors import NO_MATCH, GdbheapError, NoTarget, reason_of
from gdbheap.files import PRIVATE, check_writable
from gdbheap.heap import Heap
from gdbheap.host.identity import identify
from gdbheap.sampling.rotation import Rotation, SeriesFiles
from gdbheap.sampling.sample import Sample, Series, SeriesEvent
from gdbheap.sampling.sampler import Row, Sampler
from gdbheap.sampling.series import STANDARD_OUTPUT, form_of
from gdbheap.snapshots import file
from gdbheap.snapshots.snapshot import take
from gdbheap.targets.chosen_processes import Programs
from gdbheap.targets.process import stopped
from gdbheap.targets.started_command import StartedProcess

__all__ = ["RecordingPlan", "Recorded", "record"]

SLICE_SECONDS = 0.05
Reason = Literal["ended", "duration", "interrupted", "closed"]
# A terminal's Ctrl-C also reaches the started command, which then takes a moment to end.
PARTING_SECONDS = 1.0
LEAST_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class RecordingPlan:
    """The request for a recording: the file, how often to sample, and when to end.

    ``every``: seconds between two samples of a process.
    ``duration``: seconds; None: record until the processes end or until Ctrl-C.
    ``stop``: stop each process for each sample, for at most ``limit`` seconds.
    ``snapshot_every``: seconds between snapshots, None to take none.
    ``csv_safe``: write CSV that is safe to open in a spreadsheet.
    ``mode``: the permissions of all files.
    ``replace``: replace an older recording instead of continuing it.
    ``rotation``: when to begin a new file.
    """

    path: str
    every: float
    duration: float | None = None
    stop: bool = False
    limit: float | None = None
    snapshot_every: float | None = None
    csv_safe: bool = False
    mode: int = PRIVATE
    replace: bool = False
    rotation: Rotation = Rotation()


@dataclass(frozen=True)
class Recorded:
    """The answer of ``gdbheap record``.

    ``reason``, why the recording ended: "ended" (no process was left), "duration", "interrupted" or "closed" (the
    reader has closed the pipe).
    """

    file: str
    size: int
    samples: int
    doubtful_samples: int
    processes: int
    seconds: float
    reason: Reason
    ok: bool = True
    snapshots: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    exit_status: int | None = None


@dataclass
class _Tally:
    """The counts, snapshots and failures of the rows written so far."""

    doubtful: int = 0
    pids: set[int] = field(default_factory=set)
    snapshots: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, row: Row) -> None:
        if isinstance(row, Sample):
            self.doubtful += row.doubtful
            self.pids.add(row.pid)
        elif row.kind == "failed" and row.reason not in self.failures:
            self.failures.append(str(row.reason))
        elif row.kind == "snapshot":
            self.snapshots.append(str(row.path))


def record(programs: Programs, plan: RecordingPlan) -> Recorded:
    """Record until the recording is over. Raises UsageError, NoTarget, NotPermitted, Unsupported before the first row
    is written. Afterwards it raises only errors of writing the file."""
    return Recording(programs, plan).run()


class Recording:
    """Makes one recording: samples the processes at regular times, and writes the rows to files. Raises the errors of
    ``record``.
    """

    def __init__(self, programs: Programs, plan: RecordingPlan) -> None:
        self.plan, self.programs = plan, programs
        form_of(plan.path)
        if plan.path != STANDARD_OUTPUT:
            check_writable(plan.path)
        self.tally = _Tally()
        self.sampler = Sampler(programs, plan.stop, plan.limit, max(plan.every, LEAST_LOOK_SECONDS))
        self.sampler.check()
        if not programs.command and not programs.may_come and not programs.now():
            raise NoTarget("none of these processes is running: ps -e lists the running processes")
        if programs.may_come and not programs.now():
            raise NoTarget(NO_MATCH)
        self.started: StartedProcess | None = None

    def run(self) -> Recorded:
        """Record, and return the result. In every case, the file is complete at the end. A command that the recording
        started is not stopped.
        """
        if self.programs.command:
            self.started = self.programs.start()
        out, plan = None, self.plan
        try:
            out = SeriesFiles(
                plan.path, self._header(), plan.rotation, self._firsts, plan.replace, plan.csv_safe, plan.mode
            )
            reason = self._rounds(out)
            return self._recorded(out, reason)
        except GdbheapError:
            if self.started is not None:
                self.started.wait()
            raise
        finally:
            if out is not None:
                out.close()

    def _header(self) -> Series:
        plan, here = self.plan, identify(lambda path: Path(path).read_bytes(), os.getpid())
        return Series(round(time.time(), 6), __version__, plan.every, plan.stop, here.host, here.boot_id)

    def _firsts(self) -> list[SeriesEvent]:
        """Return the events that describe the processes that run now, for the beginning of a file."""
        return [
            self.sampler.event("start", pid, target=one.found.target, program=one.program)
            for pid, one in self.sampler.watched.items()
            if one.found is not None
        ]

    def _rounds(self, out: SeriesFiles) -> Reason:
        """Write all rows, and return why the recording ended."""
        try:
            try:
                reason: Reason = self._until_over(out)
            except KeyboardInterrupt:
                reason = "interrupted"
            self._write(out, self.sampler.event("close", reason=reason))
        except BrokenPipeError:
            reason = "closed"
        return reason

    def _until_over(self, out: SeriesFiles) -> Reason:
        number, next_snapshot = 0, self.plan.snapshot_every
        while True:
            for row in self.sampler.take():
                self._write(out, self._with_status(row))
            offset = self.sampler.moment.offset
            if self.sampler.is_over:
                return "ended"
            if next_snapshot is not None and offset >= next_snapshot:
                self._snapshots(out)
                offset = self.sampler.moment.offset
                next_snapshot = self._after(offset, self.plan.snapshot_every or 1)
            number = max(number + 1, math.ceil(offset / self.plan.every))
            until = number * self.plan.every
            if self.plan.duration is not None and until > self.plan.duration:
                self._sleep(self.plan.duration)
                return "duration"
            self._sleep(until)

    @staticmethod
    def _after(offset: float, every: float) -> float:
        return (int(offset / every) + 1) * every

    def _sleep(self, until: float) -> None:
        """Wait until ``until`` seconds after the recording began, or until the started command has ended."""
        started = self.started
        was_there = started is not None and started.status() is None
        while (left := until - self.sampler.moment.offset) > 0:
            if started is None or not was_there:
                time.sleep(left)
            elif started.status() is None:
                _wait_for(started, left)
            else:
                return

    def _with_status(self, row: Row) -> Row:
        """Return the row. If it says that the started command has ended, add the command's exit status."""
        started = self.started
        if started is None or not isinstance(row, SeriesEvent) or row.kind != "end" or row.pid != started.pid:
            return row
        return SeriesEvent(row.time, row.offset, row.kind, row.pid, status=started.wait())

    def _write(self, out: SeriesFiles, row: Row) -> None:
        out.add(row)
        self.tally.add(row)

    # Snapshots.

    def _snapshots(self, out: SeriesFiles) -> None:
        for pid in list(self.sampler.watched):
            self._write(out, self._snapshot(pid))

    def _snapshot(self, pid: int) -> SeriesEvent:
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        stem = "series" if self.plan.path == STANDARD_OUTPUT else os.path.splitext(self.plan.path)[0]
        path = f"{stem}.{pid}.{moment}.heap"
        try:
            with stopped(self.sampler.watched[pid].folder, self.plan.limit, True) as process:
                heap = Heap(process)
                heap.disclosure.contents = False
                look = take(heap)
            file.write(path, look, self.plan.mode)
        except Exception as error:
            self.sampler.failed = True
            return self.sampler.event("failed", pid, reason=reason_of(error))
        return self.sampler.event("snapshot", pid, path=path, seconds=process.stopped_seconds)

    # The end.

    def _recorded(self, out: SeriesFiles, reason: Reason) -> Recorded:
        status = None if self.started is None else self._part(self.started, reason)
        tally = self.tally
        whole = not self.sampler.failed and (reason != "interrupted" or self.plan.duration is None)
        return Recorded(
            self.plan.path, out.size, out.rows, tally.doubtful, len(tally.pids),
            round(self.sampler.moment.offset, 3), reason, whole, tally.snapshots, tally.failures, status,
        )  # fmt: skip

    def _part(self, started: StartedProcess, reason: str) -> int | None:
        """Return the started command's exit status.

        After an interrupt, which the command received too, wait at most PARTING_SECONDS. If the command has not ended
        by then, it runs on; return None."""
        with suppress(KeyboardInterrupt):
            status = started.wait(PARTING_SECONDS if reason == "interrupted" else None)
            if status is not None:
                return status
        started.let_go()
        self.tally.failures.append(f"process {started.pid} runs on")
        return None


def _wait_for(started: StartedProcess, seconds: float) -> None:
    """Wait until the command has ended, but at most this many seconds."""
    try:
        descriptor = os.pidfd_open(started.pid)
    except (OSError, AttributeError):
        time.sleep(min(seconds, SLICE_SECONDS))
        return
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll(math.ceil(1000 * seconds))
    finally:
        os.close(descriptor)
