"""Catch the moment when Python has no memory left, at the function by which the interpreter raises MemoryError.

A thread that calls the function is stopped there, holding the GIL, until it is released: what it wanted memory for, and
what uses memory, can still be read. No code runs in the process for that, and nothing has to be prepared."""

from __future__ import annotations

import select
from contextlib import ExitStack

from gdbheap.errors import NotAPython
from gdbheap.host.procfs import ProcessFolder
from gdbheap.stacks import StackFrame, Stacks
from gdbheap.targets.code_places import function_places
from gdbheap.targets.following import LocalProcess
from gdbheap.targets.hits import Follower, Hit
from gdbheap.targets.process import Preparation, Registers
from gdbheap.watching.triggers import MEMORY_ERROR
from gdbheap.watching.wake_descriptors import Waker

__all__ = ["MemoryErrors"]

# PyErr_NoMemory (Python/errors.c): the interpreter and extension modules call it. `raise MemoryError` does not.
RAISES = "PyErr_NoMemory"


class MemoryErrors:
    """Watches the MemoryErrors of a process from ``start`` on. At each, its thread stops for at most ``limit`` seconds.

    ``preparation`` is read beforehand, because a process's tracer cannot be distinguished from others later. Raises
    GdbheapError if they cannot be caught (NotAPython if there is no Python)."""

    def __init__(self, folder: ProcessFolder, seccomp: bool, limit: float) -> None:
        self.preparation = Preparation(folder)
        self.preparation.load_files()
        self._process = process = LocalProcess(folder)
        if not function_places(process.running, RAISES, ()):
            raise NotAPython(f"process {folder} has no Python that could raise MemoryError")
        self._stacks = Stacks(folder, process.machine)
        self._following = process.functions([RAISES], (), seccomp, limit)
        self._followed = ExitStack()
        self._hit: Hit | None = None

    def start(self) -> None:
        """Change the code. Raises GdbheapError. Whoever is interrupted here has to call ``end`` as always."""
        self._follower: Follower = self._followed.enter_context(self._following).follower

    def waker(self) -> Waker:
        """Return the waker that reports a MemoryError."""
        return Waker(MEMORY_ERROR, self._follower.descriptor, select.POLLIN, is_counter=True)

    def standing(self) -> list[Registers]:
        """Return the registers of the thread that is stopped at a MemoryError now; empty if there is none."""
        self._hit = self._hit or self._follower.next(0)
        if self._hit is None:
            return []
        found, notes = self._hit.registers, self._process.machine.notes
        pointers = found[notes.thread_pointer], found[notes.sp], found[notes.pc]
        return [Registers(self._hit.tid, *pointers, found[: notes.general])]

    def stack(self) -> list[StackFrame]:
        """Return the stack of the thread that is stopped at a MemoryError, outermost frame first."""
        return [] if self._hit is None else self._stacks.frames(self._hit.registers)

    def go_on(self) -> None:
        """Release the thread that is stopped at a MemoryError, and all threads that were stopped there since."""
        self._hit = None
        while self._follower.next(0) is not None:
            pass

    def end(self) -> list[str]:
        """Restore the code; return warnings if that was not possible."""
        self._followed.close()
        return self._process.warnings
