"""Read the heaps of watched processes repeatedly, for figures that the kernel does not have: bytes in use, free, kept.

Each read stops its process while its memory is copied. Only one read is made at a time, in a child process, and gdbheap
goes on watching meanwhile. The last figures are kept until the next read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from gdbheap.answers.pins import keeps
from gdbheap.errors import exhausted, one_line, reason_of
from gdbheap.first_page.ledger import ledger
from gdbheap.heap import Heap
from gdbheap.host.procfs import ProcessFolder
from gdbheap.host.usage import exact_of
from gdbheap.targets.process import stopped
from gdbheap.watching.child import LOST, Child, look_seconds, too_long, usually
from gdbheap.watching.memory_readings import ProcessMemory

__all__ = ["Figures", "Looks", "Seen", "figures_of"]

# The largest share of the time for which a process may be stopped, and for which gdbheap may compute on one processor.
STOP_SHARE, WORK_SHARE = 0.01, 0.1
NEVER = 1e18


@dataclass(frozen=True)
class Figures:
    """The figures of one read of a heap, in bytes; None if unknown.

    ``resident``, ``proportional`` (PSS), ``swapped``: from the kernel. ``used`` and ``free``, their resident parts, and
    ``trimmable`` and ``kept`` (by id): as in the answer of ``heap``. ``pinned``: what would be freed if the blocks that
    pin pages were removed. ``lines``: resident bytes of each ledger line; ``findings``: bytes of each finding; both by
    id. ``partial``: whether data is missing; ``held``: for how many seconds the process was stopped."""

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
class Seen:
    """What is known about a watched process.

    ``figures``: the figures of the last successful read; ``time``: when that was, in seconds since 1970; ``looks``: how
    many reads were made; ``errors``: how many reads failed; ``reason``: why the last read failed, "" if it did not;
    ``held``: for how many seconds reads and actions have stopped the process, in all."""

    pid: int
    name: str
    figures: Figures | None = None
    time: float | None = None
    looks: int = 0
    errors: int = 0
    reason: str = ""
    held: float = 0.0


class _Current(NamedTuple):
    """The read in progress: the process that is read, the child that reads it, when the read began
    (``time.monotonic``), and how many seconds it may take."""

    pid: int
    child: Child
    began: float
    seconds: float


class Looks:
    """Reads the heap of each process every ``every`` seconds, or less often if that takes too much of the process's
    time or of gdbheap's; None: never.

    ``limit``: the most seconds for which a process is stopped, None for no limit. ``seen``: the results, by process id.
    Another thread may read them."""

    def __init__(self, every: float | None, limit: float | None) -> None:
        self.every, self.limit = every, limit
        self.seen: dict[int, Seen] = {}
        self._due: dict[int, float] = {}
        self._folders: dict[int, ProcessFolder] = {}
        self._users: dict[int, int] = {}
        self._current: _Current | None = None

    @property
    def due(self) -> float:
        """When ``turn`` must be called next (``time.monotonic``)."""
        if self._current is not None:
            return self._current.began + self._current.seconds
        return NEVER if self.every is None else min(self._due.values(), default=NEVER)

    @property
    def descriptor(self) -> int | None:
        """The descriptor that is readable once the current read has a result; None if no read is in progress."""
        return None if self._current is None else self._current.child.descriptor

    def begin(self, folder: ProcessFolder, name: str, user: int) -> None:
        """Add a process to those whose heaps are read. ``user``: its user id."""
        pid = folder.pid
        self._users[pid] = user
        self.seen[pid], self._due[pid], self._folders[pid] = Seen(pid, name), 0.0, folder

    def forget(self, pid: int) -> None:
        """Forget a process that has ended, and abandon its read if one is in progress."""
        self.seen.pop(pid, None)
        self._due.pop(pid, None)
        self._folders.pop(pid, None)
        self._users.pop(pid, None)
        if self._current is not None and self._current.pid == pid:
            self._drop()

    def held(self, pid: int, seconds: float | None) -> None:
        """Add the seconds for which another part of gdbheap stopped the process."""
        if pid in self.seen and seconds is not None:
            self.seen[pid] = replace(self.seen[pid], held=self.seen[pid].held + seconds)

    def give_way(self) -> None:
        """Abandon the current read, because another part of gdbheap wants to read now. The read is repeated later."""
        self._drop()

    def end(self) -> None:
        """Abandon the current read for good."""
        self._drop()

    def turn(self, is_ready: bool) -> Iterator[tuple[int, str]]:
        """Process the result of the current read, or start the next read, if that is due.

        ``is_ready``: ``descriptor`` is readable. If a read failed, yield the process id and the reason, unless the
        reason is the same as last time."""
        now = time.monotonic()
        current = self._current
        if current is not None and (is_ready or now >= self.due):
            yield from self._hear(current, is_ready, now)
        if self._current is None and now >= self.due:
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
            self._succeeded(current, Figures(**found), now)

    def _start(self, pid: int) -> Iterator[tuple[int, str]]:
        folder, limit = self._folders[pid], self.limit
        try:
            child = Child(lambda: _said(folder, limit))
        except OSError as error:
            yield from self._failed(pid, str(exhausted(error)))
            return
        seconds = look_seconds(_size(folder), len(set(self._users.values())))
        self._current = _Current(pid, child, time.monotonic(), seconds)

    def _succeeded(self, current: _Current, figures: Figures, now: float) -> None:
        before, held = self.seen[current.pid], figures.held or 0.0
        self.seen[current.pid] = replace(
            before, figures=figures, time=time.time(), looks=before.looks + 1, reason="", held=before.held + held
        )
        pause = max(self.every or 0.0, held / STOP_SHARE, (now - current.began) / WORK_SHARE)
        self._due[current.pid] = current.began + pause

    def _failed(self, pid: int, reason: str, took: float = 0.0) -> Iterator[tuple[int, str]]:
        before = self.seen[pid]
        self.seen[pid] = replace(before, looks=before.looks + 1, errors=before.errors + 1, reason=reason)
        self._due[pid] = time.monotonic() + max(self.every or 0.0, 1.0, took / WORK_SHARE)
        if reason != before.reason:
            yield pid, reason

    def _drop(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.child.end()


def _size(folder: ProcessFolder) -> int:
    """Return the RSS of a process in bytes; 0 if it has ended."""
    with suppress(OSError):
        return ProcessMemory(folder).read(0).size
    return 0


def figures_of(heap: Heap) -> Figures:
    """Return the figures of a heap. They are the same as in the answers of ``heap`` and ``pins``."""
    found = ledger(heap)
    summary = found.summary
    lines = {line.id: line.resident for line in found.ledger if line.resident is not None}
    findings: dict[str, int] = {}
    for finding in found.findings:
        findings[finding.id] = findings.get(finding.id, 0) + finding.bytes
    if summary is None:
        return Figures(found.rss.bytes, None, found.rss.swapped, lines=lines, findings=findings)
    return Figures(
        found.rss.bytes, None, found.rss.swapped, summary.used, summary.used_resident, summary.free,
        summary.free_resident, found.trim, keeps(heap), {row.id: row.bytes for row in summary.kept}, lines, findings,
    )  # fmt: skip


def _said(folder: ProcessFolder, limit: float | None) -> dict[str, Any]:
    """Read a heap. Return its figures as a dict, or, if they cannot be read, the reason under the key "reason"."""
    usually()
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
        return {"reason": one_line(reason_of(error))}
