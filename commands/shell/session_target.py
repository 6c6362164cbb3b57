"""Keep the target of a session from one command to the next, as it was when it was read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from gdbheap.commands.shell.cores import Stored, Subject, core_of
from gdbheap.commands.shell.line import CommandLine, Extra, opened
from gdbheap.commands.surface.progress import tell
from gdbheap.errors import GdbheapError, NoTarget
from gdbheap.heap import Heap
from gdbheap.host.procfs import Named
from gdbheap.refusals import refusal
from gdbheap.targets.cloning import cloned
from gdbheap.targets.core import Core
from gdbheap.targets.process import Process, stopped

__all__ = ["SessionTarget"]


class SessionTarget:
    """The target of a session: a core that stays open, or a process as it was at one moment.

    The private memory of a process is copied; with --clone, a frozen copy of the process is kept. If a process cannot
    be copied, it is stopped again for each command. ``line``: the line that began the session. Nothing is read before
    ``take()`` is called.
    """

    def __init__(self, line: CommandLine, target: Subject) -> None:
        self.target = target
        self._extra: Extra = line.extra
        self._limit = line.options.max_stop or None
        self._held = ExitStack()
        self._heap: Heap | None = None
        self._is_lasting = True
        self._folder = None if isinstance(target, (str, Stored)) else refusal.open_folder(target)

    def take(self) -> None:
        """Read the target again, and forget the data that was read before.

        Raises GdbheapError if the target no longer exists.
        """
        self.check_alive()
        self.close()
        found = self._core(self.target) if isinstance(self.target, (str, Stored)) else self._process(self.target)
        self._is_lasting = found is not None
        if found is not None:
            self._heap = Heap(found)

    def _core(self, core: str | Stored) -> Core:
        return core_of(core, self._extra.exe, self._extra.sysroot)

    def _process(self, folder: Named) -> Process | None:
        process = self._held.enter_context(cloned(folder, self._limit)) if self._extra.clone else self._copied(folder)
        if process is not None and process.stopped_seconds is not None:
            milliseconds = 1000 * process.stopped_seconds
            tell(f"process {folder} was stopped for {milliseconds:.0f} ms; the copy is kept", self._extra.verbose)
        return process

    def _copied(self, folder: Named) -> Process | None:
        """Return the process with a copy of all its private memory.

        If it cannot be copied or its memory may not be read, print the reason and return None.
        """
        with stopped(folder, self._limit, copies=True) as process:
            pass
        if process.is_copied and not process.space.left_out:
            return process
        why = "its memory cannot be read" if process.refusal else "gdbheap has too little memory for a copy"
        tell(f"process {folder} cannot be copied ({why}): each command reads it anew", anyway=True)
        return None

    def check_alive(self) -> None:
        """Raise NoTarget if the target is a process that has ended."""
        if self._folder is None:
            return
        try:
            refusal.check(self._folder)
        except NoTarget:
            copied = self._heap is not None and not self._extra.clone
            left = "the memory that gdbheap has read is kept" if copied else "gdbheap has kept none of its memory"
            raise NoTarget(f"process {self._folder.pid} has ended: {left}") from None
        except GdbheapError:
            # The command that reads the target next will report the reason.
            return

    @contextmanager
    def open(self, line: CommandLine, target: Subject) -> Iterator[Heap]:
        """Yield the heap for one command.

        If the command names another target, or calls a function in the process, a target is opened for this command
        only.
        """
        calls = line.command.call_for(line.options) is not None
        if target == self.target and (calls or self._extra.clone):
            # A frozen copy ends together with its process.
            self.check_alive()
        if target == self.target and not calls:
            if self._heap is None and self._is_lasting:
                self.take()
            if self._heap is not None:
                with self._used(self._heap) as heap:
                    yield heap
                return
        with opened(self._as_begun(line, calls), target) as heap:
            yield heap
        if calls:
            self.close()

    def _as_begun(self, line: CommandLine, calls: bool) -> CommandLine:
        """Return the line with the options of the line that began the session. If a function is called in the process,
        --clone is left out."""
        extra = replace(self._extra, clone=self._extra.clone and not calls)
        return CommandLine(line.command, line.options, extra, line.words, line.started, line.called, line.open)

    @contextmanager
    def _used(self, heap: Heap) -> Iterator[Heap]:
        """Yield the heap. If the command is interrupted, keep only the copied memory, so that the next command computes
        everything anew."""
        try:
            yield heap
        except GdbheapError:
            raise
        except BaseException:
            self._heap = Heap(heap.target)
            raise

    def close(self) -> None:
        """Forget the data that was read. A frozen copy is ended."""
        self._heap = None
        self._held.close()
