"""Catch MemoryErrors of a Python process, at the function with which the interpreter raises them.

A thread that calls this function is stopped there, holding the GIL, until gdbheap releases it. Meanwhile gdbheap can
read the thread's request and the holders of memory. This way of catching runs no code in the process and needs no
preparation by the program.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import ExitStack

from gdbheap.errors import NotAPython
from gdbheap.host.procfs import ProcessFolder
from gdbheap.stack_frames import StackFrame
from gdbheap.stacks import Stacks
from gdbheap.targets.code_places import function_places
from gdbheap.targets.following import LocalProcess
from gdbheap.targets.hits import Follower, Hit
from gdbheap.targets.process import Preparation, Registers
from gdbheap.watching.triggers import MEMORY_ERROR
from gdbheap.watching.wake_descriptors import Waker

__all__ = ["MemoryErrors"]

# PyErr_NoMemory (Python/errors.c): the interpreter and extension modules call it, but `raise MemoryError` does not.
RAISES = "PyErr_NoMemory"


class MemoryErrors:
    """Catches the MemoryErrors of a process after ``start``. A thread that raises a MemoryError is stopped for at most
    ``limit`` seconds.

    ``preparation``: facts about the process, read before gdbheap traces it, because afterwards another tracer could not
    be noticed. Raises GdbheapError if MemoryErrors cannot be caught (NotAPython if there is no Python)."""

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
        """Change the process's code so that MemoryErrors are caught. Raises GdbheapError. Call ``end`` even if
        ``start`` is interrupted."""
        self._follower: Follower = self._followed.enter_context(self._following).follower

    def waker(self) -> Waker:
        """Return a waker that fires at a MemoryError."""
        return Waker(MEMORY_ERROR, self._follower.descriptor, select.POLLIN, is_counter=True)

    def standing(self) -> list[Registers]:
        """Return the registers of the thread that is now stopped at a MemoryError; [] if no thread is stopped."""
        self._hit = self._hit or self._follower.next(0)
        if self._hit is None:
            return []
        found, notes = self._hit.registers, self._process.machine.notes
        pointer = 0 if notes.thread_pointer is None else found[notes.thread_pointer]
        pointers = pointer, found[notes.sp], found[notes.pc]
        return [Registers(self._hit.tid, *pointers, found[: notes.general])]

    def stack(self) -> Callable[[], list[StackFrame]]:
        """Capture the stack of the thread that is stopped at a MemoryError. Return a function that returns its frames,
        outermost first. This function reads symbol tables, so release the thread first (``go_on``).
        """
        captured = None if self._hit is None else self._stacks.capture_registers(self._hit.registers)
        return lambda: [] if captured is None else list(self._stacks.name(captured))

    def go_on(self) -> None:
        """Release the thread that is stopped at a MemoryError, and all threads that were stopped after it."""
        self._hit = None
        while self._follower.next(0) is not None:
            pass

    def end(self) -> list[str]:
        """Restore the process's code. Return warnings if that was not possible."""
        self._followed.close()
        return self._process.warnings
