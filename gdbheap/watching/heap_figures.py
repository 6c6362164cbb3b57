"""Looks at what is watched, again and again, for figures that no file of the kernel has: what is in use, free, kept.

Each stops its process for as long as its memory is copied. One is taken at a time, in a child of ours, while the
waiting goes on; what was found last is kept until the next one."""

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

# A process stands still for so much of the time at most, and a core of ours computes for so much of it.
STOP_SHARE, WORK_SHARE = 0.01, 0.1
NEVER = 1e18


@dataclass(frozen=True)
class Figures:
    """What a look found, in bytes; None what nobody knows. ``resident``, ``proportional`` (PSS) and ``swapped``: by the
    kernel. ``used`` and ``free``, of both the resident part, ``trimmable`` and ``kept`` (by its id): as in the answer
    of ``heap``; ``pinned``: what would go if the pins were gone. ``lines``: what is resident, by the ids of the
    ledger's lines; ``findings``: bytes by their ids. ``partial``: something is missing in it; ``held``: for how many
    seconds the process stood still."""

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
    """What is known of a process that is watched: ``figures`` of the last look that succeeded, at ``time`` (seconds
    since 1970); how many ``looks`` there were, how many of them failed (``errors``, the last one for ``reason``); for
    how many seconds it was ``held`` in all, by looks and by what was done to it."""

    pid: int
    name: str
    figures: Figures | None = None
    time: float | None = None
    looks: int = 0
    errors: int = 0
    reason: str = ""
    held: float = 0.0


class _Current(NamedTuple):
    """The look that is being taken, since when, and how many seconds it may take."""

    pid: int
    child: Child
    began: float
    seconds: float


class Looks:
    """Each process every ``every`` seconds, later where that would take too much of its time or of ours; None: never.
    It is held for ``limit`` seconds at most, None without end. ``seen``: by process id; another thread may read it."""

    def __init__(self, every: float | None, limit: float | None) -> None:
        self.every, self.limit = every, limit
        self.seen: dict[int, Seen] = {}
        self._due: dict[int, float] = {}
        self._folders: dict[int, ProcessFolder] = {}
        self._users: dict[int, int] = {}
        self._current: _Current | None = None

    @property
    def due(self) -> float:
        """When there is something to do (``time.monotonic``)."""
        if self._current is not None:
            return self._current.began + self._current.seconds
        return NEVER if self.every is None else min(self._due.values(), default=NEVER)

    @property
    def descriptor(self) -> int | None:
        """What is to be waited for besides."""
        return None if self._current is None else self._current.child.descriptor

    def begin(self, folder: ProcessFolder, name: str, user: int) -> None:
        """Watch one more, of that user."""
        pid = folder.pid
        self._users[pid] = user
        self.seen[pid], self._due[pid], self._folders[pid] = Seen(pid, name), 0.0, folder

    def forget(self, pid: int) -> None:
        """One that is gone."""
        self.seen.pop(pid, None)
        self._due.pop(pid, None)
        self._folders.pop(pid, None)
        self._users.pop(pid, None)
        if self._current is not None and self._current.pid == pid:
            self._drop()

    def held(self, pid: int, seconds: float | None) -> None:
        """It stood still by another's doing of ours."""
        if pid in self.seen and seconds is not None:
            self.seen[pid] = replace(self.seen[pid], held=self.seen[pid].held + seconds)

    def give_way(self) -> None:
        """Let go of what is held: somebody else wants to look now. That look is taken again later."""
        self._drop()

    def end(self) -> None:
        """No look is taken any more."""
        self._drop()

    def turn(self, is_ready: bool) -> Iterator[tuple[int, str]]:
        """Do what is due; ``is_ready``: ``descriptor`` has something to say. Yields the process of a look that failed
        and why, once for each reason."""
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
    """Its RSS in bytes; 0 once it has ended."""
    with suppress(OSError):
        return ProcessMemory(folder).read(0).size
    return 0


def figures_of(heap: Heap) -> Figures:
    """What the answers say of a heap."""
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
    """The figures of a process, or the reason why there are none."""
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
