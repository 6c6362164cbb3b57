"""Read the heaps of watched processes repeatedly, for figures that no file of the kernel has: in use, free, kept.

Each read stops its process while its memory is copied. One read is made at a time, in a child process, while the wait
goes on; the last figures are kept until the next read."""

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

# The largest share of time that a process is stopped, and that one of our processor cores computes.
STOP_SHARE, WORK_SHARE = 0.01, 0.1
NEVER = 1e18


@dataclass(frozen=True)
class Figures:
    """The figures of one read, in bytes; None if unknown.

    ``resident``, ``proportional`` (PSS), ``swapped``: from the kernel. ``used`` and ``free``, each with its resident
    part, ``trimmable`` and ``kept`` (by id): as in the answer of ``heap``. ``pinned``: what removing the pins would
    free. ``lines``: resident bytes by ledger line; ``findings``: bytes by finding. ``partial``: something is missing;
    ``held``: for how many seconds the process was stopped."""

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
    """What is known of a watched process.

    ``figures``: of the last read that succeeded, at ``time`` (seconds since 1970); ``looks``: how many reads were made;
    ``errors``: how many failed, the last for ``reason``; ``held``: for how many seconds it was stopped in all, by reads
    and by actions."""

    pid: int
    name: str
    figures: Figures | None = None
    time: float | None = None
    looks: int = 0
    errors: int = 0
    reason: str = ""
    held: float = 0.0


class _Current(NamedTuple):
    """The read in progress: its child process, when it began (``time.monotonic``), and how many seconds it may take."""

    pid: int
    child: Child
    began: float
    seconds: float


class Looks:
    """Reads of each process every ``every`` seconds, or later if that takes too much of its time or ours; None: never.

    A process is stopped for at most ``limit`` seconds, None without limit. ``seen``: the results by process id, which
    another thread may read."""

    def __init__(self, every: float | None, limit: float | None) -> None:
        self.every, self.limit = every, limit
        self.seen: dict[int, Seen] = {}
        self._due: dict[int, float] = {}
        self._folders: dict[int, ProcessFolder] = {}
        self._users: dict[int, int] = {}
        self._current: _Current | None = None

    @property
    def due(self) -> float:
        """When ``turn`` has something to do (``time.monotonic``)."""
        if self._current is not None:
            return self._current.began + self._current.seconds
        return NEVER if self.every is None else min(self._due.values(), default=NEVER)

    @property
    def descriptor(self) -> int | None:
        """The descriptor to wait for; None if no read is in progress."""
        return None if self._current is None else self._current.child.descriptor

    def begin(self, folder: ProcessFolder, name: str, user: int) -> None:
        """Add a process of this user to those that are read."""
        pid = folder.pid
        self._users[pid] = user
        self.seen[pid], self._due[pid], self._folders[pid] = Seen(pid, name), 0.0, folder

    def forget(self, pid: int) -> None:
        """Forget a process that is gone."""
        self.seen.pop(pid, None)
        self._due.pop(pid, None)
        self._folders.pop(pid, None)
        self._users.pop(pid, None)
        if self._current is not None and self._current.pid == pid:
            self._drop()

    def held(self, pid: int, seconds: float | None) -> None:
        """Add time for which another part of gdbheap stopped the process."""
        if pid in self.seen and seconds is not None:
            self.seen[pid] = replace(self.seen[pid], held=self.seen[pid].held + seconds)

    def give_way(self) -> None:
        """Abandon the current read, because another part of gdbheap wants to read now; it is made again later."""
        self._drop()

    def end(self) -> None:
        """Abandon the current read, for good."""
        self._drop()

    def turn(self, is_ready: bool) -> Iterator[tuple[int, str]]:
        """Do what is due. ``is_ready``: ``descriptor`` is readable. Yields the process and the reason of a read that
        failed, once for each new reason."""
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
    """Return the figures of a heap, as the answers of ``heap`` and ``pins`` have them."""
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
    """Return the figures of a process as a dict, or the reason why there are none."""
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
