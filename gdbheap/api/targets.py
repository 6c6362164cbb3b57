"""How what a caller names comes to be a heap of answers: read when it is first asked, and kept until it is closed."""

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

__all__ = ["CoreFile", "Current", "LiveProcess", "Opened"]


class Opened(Protocol):
    """A target that answers are about."""

    @property
    def name(self) -> str:
        """What it is called: "process 1234"."""

    def heap(self) -> Iterator[Heap]:
        """What was read of it, for one question: the body of a context manager."""

    def close(self) -> None:
        """Forget it; a frozen copy is ended."""


class LiveProcess:
    """A process, read at the first question: it stands while its private memory is copied, or with ``clone`` while the
    kernel makes a frozen copy of it, and runs on. Where there is no room for a copy, it stands for each question.
    ``limit``: for how many seconds it may stand, None for any time."""

    def __init__(self, folder: ProcessFolder, limit: float | None, clone: bool) -> None:
        self._folder, self._limit, self._clone = folder, limit, clone
        self._held = ExitStack()
        self._heap: Heap | None = None
        self._is_lasting = True

    @property
    def name(self) -> str:
        """Return what it is called."""
        return f"process {self._folder.pid}"

    def heap(self) -> Iterator[Heap]:
        """Yield what was read of it. Raises what ``stopped`` and ``cloned`` raise."""
        if self._heap is None and self._is_lasting:
            self._take()
        if self._heap is not None:
            yield from _kept(self)
            return
        with stopped(self._folder, self._limit, copies=True) as process:
            yield Heap(process)

    def _take(self) -> None:
        if self._clone:
            # Ended as soon as its bytes are here, if there is room for them, else with this.
            self._heap = Heap(self._held.enter_context(cloned(self._folder, self._limit, copies=True)))
            return
        with stopped(self._folder, self._limit, copies=True) as process:
            pass
        self._is_lasting = process.is_copied or process.refusal is not None
        if self._is_lasting:
            self._heap = Heap(process)

    def close(self) -> None:
        """Forget it; a frozen copy is ended."""
        self._heap = None
        self._held.close()


class CoreFile:
    """A core, opened at the first question."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._heap: Heap | None = None

    @property
    def name(self) -> str:
        """Return what it is called."""
        return f"core {self._path}"

    def heap(self) -> Iterator[Heap]:
        """Yield what was read of it. Raises what ``Core`` raises."""
        if self._heap is None:
            self._heap = Heap(Core(self._path))
        yield from _kept(self)

    def close(self) -> None:
        """Forget it."""
        self._heap = None


class Current:
    """What gdb looks at, until it runs on."""

    def __init__(self, stop: Stop) -> None:
        self._stop: Stop | None = stop
        self.name = stop.name

    def heap(self) -> Iterator[Heap]:
        """Yield it. Raises UsageError once the process ran."""
        assert self._stop is not None
        if self._stop.is_over():
            raise UsageError(f"{self.name} ran since, or was changed: call gdbheap.here() again")
        yield self._stop.heap

    def close(self) -> None:
        """Forget it."""
        self._stop = None


def _kept(opened: LiveProcess | CoreFile) -> Iterator[Heap]:
    """Yield a heap that is kept. A question that was cut short leaves nothing for the next one to build on, but the
    bytes."""
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
def asked(opened: Opened) -> Iterator[Heap]:
    """A block with what was read of a target."""
    yield from opened.heap()
