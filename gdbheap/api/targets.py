"""Targets of the library. Each provides a heap, read at the first question and kept until the target is closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from gdbheap.api.current import Stop
from gdbheap.errors import GdbheapError, UsageError
from gdbheap.heap import Heap
from gdbheap.host.procfs import ProcessFolder
from gdbheap.targets.cloning import cloned
from gdbheap.targets.core import Core
from gdbheap.targets.process import stopped

__all__ = ["CoreFile", "Current", "LiveProcess", "OpenTarget"]


class OpenTarget(Protocol):
    """An open target that answers the library's questions: a process, a core, or the target that is selected in gdb."""

    @property
    def name(self) -> str:
        """The target's name, such as "process 1234"."""

    def heap(self) -> Iterator[Heap]:
        """Yield the heap for one question. ``asked`` makes a context manager of this generator."""

    def close(self) -> None:
        """Drop the heap, and end a frozen copy of the process."""


class LiveProcess:
    """A process, read at the first question. The process is stopped while its private memory is copied, or with
    ``clone`` while the kernel makes a frozen copy. If its memory is too large to be copied, the process is stopped for
    each question. ``limit``: the most seconds for which it is stopped; None: no limit."""

    def __init__(self, folder: ProcessFolder, limit: float | None, clone: bool) -> None:
        self._folder, self._limit, self._clone = folder, limit, clone
        self._held = ExitStack()
        self._heap: Heap | None = None
        self._is_lasting = True

    @property
    def name(self) -> str:
        return f"process {self._folder.pid}"

    def heap(self) -> Iterator[Heap]:
        if self._heap is None and self._is_lasting:
            self._take()
        if self._heap is not None:
            yield from _kept(self)
            return
        with stopped(self._folder, self._limit, copies=True) as process:
            yield Heap(process)

    def _take(self) -> None:
        if self._clone:
            # The frozen copy ends as soon as its bytes are copied into this program. If there is not enough memory for
            # them, it ends when this target is closed.
            self._heap = Heap(self._held.enter_context(cloned(self._folder, self._limit, copies=True)))
            return
        with stopped(self._folder, self._limit, copies=True) as process:
            pass
        self._is_lasting = process.is_copied or process.refusal is not None
        if self._is_lasting:
            self._heap = Heap(process)

    def close(self) -> None:
        self._heap = None
        self._held.close()


class CoreFile:
    """A core, opened at the first question."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._heap: Heap | None = None

    @property
    def name(self) -> str:
        return f"core {self._path}"

    def heap(self) -> Iterator[Heap]:
        if self._heap is None:
            self._heap = Heap(Core(self._path))
        yield from _kept(self)

    def close(self) -> None:
        self._heap = None


class Current:
    """The process or core that is selected in gdb, until the process runs again."""

    def __init__(self, stop: Stop) -> None:
        self._stop: Stop | None = stop
        self.name = stop.name

    def heap(self) -> Iterator[Heap]:
        """Yield the heap. Raises UsageError once the process has run."""
        assert self._stop is not None
        if self._stop.is_over():
            raise UsageError(f"{self.name} has run or changed since this stop: call gdbheap.here() again")
        yield self._stop.heap

    def close(self) -> None:
        self._stop = None


def _kept(opened: LiveProcess | CoreFile) -> Iterator[Heap]:
    """Yield the heap that a target has kept from an earlier question.

    If the question is interrupted, drop the analysis of the memory; the next question analyses the memory again."""
    heap = opened._heap
    assert heap is not None
    try:
        yield heap
    except GdbheapError:
        raise
    except BaseException:
        opened._heap = Heap(heap.target)
        raise


@contextmanager
def asked(opened: OpenTarget) -> Iterator[Heap]:
    """Yield the heap of a target inside a ``with`` block."""
    yield from opened.heap()
