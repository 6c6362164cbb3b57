"""Being there when Python has no memory: at the function by which the interpreter raises MemoryError.

A thread that calls it stands there, with Python's lock in its hands, until it is let go: what it wanted memory for, and
what there is, can still be looked at. Nothing runs in the process for that, and nothing had to be prepared."""

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

# PyErr_NoMemory (Python/errors.c): what the interpreter and extension modules call. `raise MemoryError` does not.
RAISES = "PyErr_NoMemory"


class MemoryErrors:
    """The MemoryErrors of a process, of which a thread stands for ``limit`` seconds at most. ``preparation``:
    what a look needs; who traces a process cannot be told from others later. Raises GdbheapError where they cannot be
    seen, NotAPython among it."""

    def __init__(self, folder: ProcessFolder, seccomp: bool, limit: float) -> None:
        self.preparation = Preparation(folder)
        self.preparation.load_files()
        self._process = process = LocalProcess(folder)
        if not function_places(process.running, RAISES, ()):
            raise NotAPython(f"process {folder} has no Python that could raise MemoryError")
        self._stacks = Stacks(folder, process.machine)
        self._followed = ExitStack()
        following = self._followed.enter_context(process.functions([RAISES], (), seccomp, limit))
        self._follower: Follower = following.follower
        self._hit: Hit | None = None

    def waker(self) -> Waker:
        """What says that there was one."""
        return Waker(MEMORY_ERROR, self._follower.descriptor, select.POLLIN, is_counter=True)

    def standing(self) -> list[Registers]:
        """The thread that stands there now, if there is one."""
        self._hit = self._hit or self._follower.next(0)
        if self._hit is None:
            return []
        found, notes = self._hit.registers, self._process.machine.notes
        pointers = found[notes.thread_pointer], found[notes.sp], found[notes.pc]
        return [Registers(self._hit.tid, *pointers, found[: notes.general])]

    def stack(self) -> list[StackFrame]:
        """What that thread is doing, the outermost frame first."""
        return [] if self._hit is None else self._stacks.frames(self._hit.registers)

    def go_on(self) -> None:
        """Let it go, and all that have come there since."""
        self._hit = None
        while self._follower.next(0) is not None:
            pass

    def end(self) -> list[str]:
        """Put the code back; return why it is not, where that is so."""
        self._followed.close()
        return self._process.warnings
