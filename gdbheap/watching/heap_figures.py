"""Read the heaps of watched processes repeatedly.

The heaps give figures that the kernel does not have, such as bytes in use and free bytes. Each read stops its process
while its memory is copied. Only one read is made at a time, in a child process, and gdbheap continues to watch
meanwhile. The last figures are kept until the next read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, NamedTuple

from gdbheap.answers.pins import keeps
from gdbheap.dataclass import dataclass
from gdbheap.errors import exhausted, own_line, reason_of
from gdbheap.first_page.ledger import ledger
from gdbheap.heap import Heap
from gdbheap.host.procfs import ProcessFolder
from gdbheap.host.service import Service, service_of
from gdbheap.host.usage import exact_of
from gdbheap.targets.process import stopped
from gdbheap.watching.child import (
    LOST,
    PARTING_SECONDS,
    Child,
    EndingChildren,
    read_seconds,
    restore_priority,
    too_long,
    wait_for_end,
)
from gdbheap.watching.memory_readings import ProcessMemory

__all__ = ["HeapFigures", "HeapReader", "WatchedHeap", "figures_of"]

# The largest share of the time for which a process may be stopped, and for which gdbheap may compute on one processor.
STOP_SHARE, WORK_SHARE = 0.01, 0.1
# A read may fail because another program reads at the same moment. The pause after a failure, in seconds, doubles with
# each further one, up to the usual pause.
FIRST_PAUSE = 1.0


@dataclass(frozen=True)
class HeapFigures:
    """The figures of one read of a heap, in bytes; None if unknown.

    ``resident``, ``proportional`` (PSS), ``swapped``: the kernel's figures.
    ``used``, ``free``, their resident parts, ``trimmable``, ``kept``: the figures in the answer of ``heap``. ``kept``
    has free bytes by the reason why they are not returned.
    ``pinned``: what would be freed if the blocks that pin pages were removed.
    ``lines``: the resident bytes of each line of the ledger, by id.
    ``findings``: the bytes of each finding, by id.
    ``partial``: whether data is missing.
    ``held``: for how many seconds the process was stopped.
    """

    resident: int | None = None
    proportional: int | None = None
    swapped: int | None = None
    used: int | None = None
    used_resident: int | None = None
    free: int | None = None
    free_resident: int | None = None
    trimmable: int | None = None
    pinned: int | None = None
    kept: dict[str, int] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    partial: bool = False
    held: float | None = None


@dataclass(frozen=True)
class WatchedHeap:
    """The facts about a watched process.

    ``figures``, ``time``: the figures of the last successful read, and its time in seconds since 1970; None before the
    first.
    ``reads``, ``errors``: the number of reads, and of failed reads.
    ``reason``: why the last read failed, "" if it succeeded.
    ``held``: for how many seconds in total reads and actions have stopped the process.
    """

    pid: int
    name: str
    figures: HeapFigures | None = None
    time: float | None = None
    reads: int = 0
    errors: int = 0
    reason: str = ""
    held: float = 0.0
    service: Service = Service()


class _Current(NamedTuple):
    """The read in progress.

    The fields are the process that is read, the child that reads it, when the read began (``time.monotonic``), and how
    many seconds it may take.
    """

    pid: int
    child: Child
    began: float
    seconds: float


class HeapReader:
    """Reads the heap of each watched process from time to time, each in a child process.

    ``every``: the seconds between two reads of a process, None for no reads. Reads are rarer if they take too much time
    of the process or of gdbheap. A failed read is repeated soon; after each further failure, the wait becomes longer.
    ``limit``: the most seconds for which a process is stopped, None for no limit.
    ``leaving``: the children that are ending.
    ``seen``: the results, by process id; another thread may read it.
    ``gone``: the counts of ended processes, by name and service; another thread may read it.
    """

    def __init__(self, every: float | None, limit: float | None, leaving: EndingChildren | None = None) -> None:
        self.every, self.limit = every, limit
        self.leaving = leaving if leaving is not None else EndingChildren()
        self.seen: dict[int, WatchedHeap] = {}
        self.gone: dict[tuple[str, Service], WatchedHeap] = {}
        self._due: dict[int, float] = {}
        self._pauses: dict[int, float] = {}
        self._folders: dict[int, ProcessFolder] = {}
        self._users: dict[int, int] = {}
        self._current: _Current | None = None

    @property
    def due(self) -> float:
        """The time at which ``turn`` must be called next (``time.monotonic``)."""
        if self._current is not None:
            return self._current.began + self._current.seconds
        return math.inf if self.every is None else min(self._due.values(), default=math.inf)

    @property
    def descriptor(self) -> int | None:
        """The descriptor that is readable once the current read has a result; None if no read is in progress."""
        return None if self._current is None else self._current.child.descriptor

    def begin(self, folder: ProcessFolder, name: str, user: int, groups: bytes = b"") -> None:
        """Add a process whose heap is to be read. ``user``: the id of the user who started it; ``groups``: its control
        groups, as the kernel's text."""
        pid = folder.pid
        self._users[pid] = user
        self.seen[pid], self._due[pid] = WatchedHeap(pid, name, service=service_of(groups)), 0.0
        self._folders[pid] = folder

    def rename(self, pid: int, name: str, groups: bytes) -> None:
        """Store the new name and control groups of a process that runs another program or moved to another group."""
        seen = self.seen.get(pid)
        if seen is not None:
            self.seen[pid] = replace(seen, name=name, service=service_of(groups))

    def forget(self, pid: int) -> None:
        """Forget a process that has ended, and abandon its read if one is in progress."""
        seen = self.seen.pop(pid, None)
        if seen is not None:
            self._leave(seen)
        self._due.pop(pid, None)
        self._pauses.pop(pid, None)
        self._folders.pop(pid, None)
        self._users.pop(pid, None)
        if self._current is not None and self._current.pid == pid:
            self._drop()

    def _leave(self, seen: WatchedHeap) -> None:
        """Add the counts of a process that has ended to ``gone``, if other processes of the same name and service still
        run. So the counters of a service do not fall when one of its workers ends."""
        key = (seen.name, seen.service)
        before = self.gone.pop(key, WatchedHeap(0, *key[:1], service=seen.service))
        if any((one.name, one.service) == key for one in self.seen.values()):
            self.gone[key] = replace(
                before, reads=before.reads + seen.reads, errors=before.errors + seen.errors,
                held=before.held + seen.held,
            )  # fmt: skip

    def held(self, pid: int, seconds: float | None) -> None:
        """Add the seconds for which another part of gdbheap stopped the process."""
        if pid in self.seen and seconds is not None:
            self.seen[pid] = replace(self.seen[pid], held=self.seen[pid].held + seconds)

    def give_way(self) -> None:
        """Abandon the current read, because another part of gdbheap must read now. The read is repeated later."""
        self._drop()

    def end(self) -> None:
        """Abandon the current read without repeating it, and wait until all children have ended."""
        self._drop()
        self.leaving.end()

    def turn(self, is_ready: bool, may_start: bool = True) -> Iterator[tuple[int, str]]:
        """Process the result of the current read, or start the next read, if that is due and ``may_start``.

        ``is_ready``: ``descriptor`` is readable. If a read failed, yield the process id and the reason. Yield nothing
        if the reason is the same as last time, or if the process has ended."""
        now = time.monotonic()
        current = self._current
        if current is not None and (is_ready or now >= self.due):
            yield from self._hear(current, is_ready, now)
        if may_start and self._current is None and now >= self.due:
            yield from self._start(min(self._due, key=self._due.__getitem__))

    def _hear(self, current: _Current, is_ready: bool, now: float) -> Iterator[tuple[int, str]]:
        if is_ready and not current.child.hear():
            return
        found = current.child.result() if is_ready else None
        self._drop()
        if found is None:
            reason = LOST if is_ready else too_long(current.seconds)
            yield from self._failed(current.pid, reason, now - current.began)
        elif "reason" in found:
            yield from self._failed(current.pid, found["reason"], now - current.began)
        else:
            self._succeeded(current, HeapFigures(**found), now)

    def _start(self, pid: int) -> Iterator[tuple[int, str]]:
        folder, limit, leaving = self._folders[pid], self.limit, self.leaving.pids
        try:
            child = Child(lambda: _said(folder, limit, leaving))
        except OSError as error:
            yield from self._failed(pid, str(exhausted(error)))
            return
        seconds = read_seconds(_size(folder), len(set(self._users.values())))
        self._current = _Current(pid, child, time.monotonic(), seconds)

    def _succeeded(self, current: _Current, figures: HeapFigures, now: float) -> None:
        before, held = self.seen[current.pid], figures.held or 0.0
        self.seen[current.pid] = replace(
            before, figures=figures, time=time.time(), reads=before.reads + 1, reason="", held=before.held + held
        )
        pause = max(self.every or 0.0, held / STOP_SHARE, (now - current.began) / WORK_SHARE)
        self._due[current.pid] = current.began + pause
        self._pauses.pop(current.pid, None)

    def _failed(self, pid: int, reason: str, took: float = 0.0) -> Iterator[tuple[int, str]]:
        if not self._folders[pid].is_running():
            self._due[pid] = math.inf
            return
        before = self.seen[pid]
        self.seen[pid] = replace(before, reads=before.reads + 1, errors=before.errors + 1, reason=reason)
        pause = max(FIRST_PAUSE, min(self.every or 0.0, 2 * self._pauses.get(pid, 0.0)))
        self._pauses[pid] = pause
        self._due[pid] = time.monotonic() + max(pause, took / WORK_SHARE)
        if reason != before.reason:
            yield pid, reason

    def _drop(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            self.leaving.add(current.child)


def _size(folder: ProcessFolder) -> int:
    """Return the RSS of a process in bytes; 0 if it has ended."""
    with suppress(OSError):
        return ProcessMemory(folder).read(0).size
    return 0


def figures_of(heap: Heap) -> HeapFigures:
    """Return the figures of a heap. The figures are the same as in the answers of ``heap`` and ``pins``."""
    found = ledger(heap)
    summary = found.summary
    lines = {line.id: line.resident for line in found.ledger if line.resident is not None}
    findings: dict[str, int] = {}
    for finding in found.findings:
        findings[finding.id] = findings.get(finding.id, 0) + finding.bytes
    if summary is None:
        return HeapFigures(found.rss.bytes, None, found.rss.swapped, lines=lines, findings=findings)
    return HeapFigures(
        found.rss.bytes, None, found.rss.swapped, summary.used, summary.used_resident, summary.free,
        summary.free_resident, found.trim, keeps(heap), {row.id: row.bytes for row in summary.kept}, lines, findings,
    )  # fmt: skip


def _said(folder: ProcessFolder, limit: float | None, leaving: Sequence[int]) -> dict[str, Any]:
    """Wait until the processes in ``leaving`` have ended, because they may still keep the process stopped. Then read
    its heap.

    Return the heap's figures as a dict or, if they cannot be read, the reason under the key "reason"."""
    restore_priority()
    wait_for_end(leaving, PARTING_SECONDS)
    try:
        with stopped(folder, limit, copies=True) as process:
            if process.refusal is not None:
                raise process.refusal
            heap = Heap(process)
            heap.disclosure.contents = False
            figures = figures_of(heap)
        exact = None
        with suppress(OSError):
            exact = exact_of(folder)
        share = None if exact is None else exact.pss
        return vars(replace(figures, proportional=share, partial=heap.partial, held=process.stopped_seconds))
    except (Exception, KeyboardInterrupt) as error:
        return {"reason": own_line(reason_of(error))}
