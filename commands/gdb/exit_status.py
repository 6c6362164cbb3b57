"""The exit status of a gdb batch, and the error that is reported if gdb has no target."""

from __future__ import annotations

import contextlib
import errno
import os

import gdb

from gdbheap.commands.gdb.command_line import own_invocation
from gdbheap.commands.gdb.output import output_failed, write
from gdbheap.errors import GdbheapError, NoTarget
from gdbheap.refusals import refusal
from gdbheap.targets.core import check_core

__all__ = ["Status"]

UNWRITTEN = 1


class Status:
    """Keeps the exit status of a batch: the highest status of gdbheap's commands. gdb itself would exit with 0 or 1."""

    def __init__(self) -> None:
        self.worst = 0
        self.had_target = False
        self.invocation = own_invocation()

    def note(self, status: int) -> None:
        """Note the exit status of a command that has ended; the batch ends with the highest status."""
        self.worst = max(self.worst, status)

    def no_target(self) -> GdbheapError:
        """Return the error that says why there is no target: gdb could not open the target on its command line, or its
        command line names no target."""
        pid, core = self.invocation.pid, self.invocation.core
        if not self.had_target and pid is not None:
            return refusal.explain(pid, PermissionError(errno.EPERM, os.strerror(errno.EPERM)))
        if not self.had_target and core is not None:
            try:
                check_core(core)
            except GdbheapError as error:
                return error
        return NoTarget("gdb has no process and no core: type attach PID, or core-file FILE")

    def refused_core(self) -> str | None:
        """Return the path of a valid core that gdb was started with but refused; None if there is none. gdb refuses a
        core whose end is missing."""
        core = None if self.had_target else self.invocation.core
        if core is not None:
            with contextlib.suppress(GdbheapError):
                check_core(core)
                return os.path.abspath(core)
        return None

    def _came_to_nothing(self) -> bool:
        """Return whether gdb could not open the target on its command line, and no command has reported that."""
        wanted = self.invocation.asked and (self.invocation.pid is not None or self.invocation.core is not None)
        return wanted and not self.had_target and not self.worst and self.refused_core() is None

    def finish(self) -> None:
        """End gdb with the noted status. This is called when gdb exits and has detached. It does nothing unless gdb
        runs a batch."""
        if not self.invocation.batch:
            return
        if self._came_to_nothing():
            error = self.no_target()
            self.note(error.status)
            write(f"gdbheap: {error}\n", gdb.STDERR)
        gdb.flush(gdb.STDOUT)
        if output_failed():
            self.note(UNWRITTEN)
            write("gdbheap: the answer could not be printed: standard output is full or closed\n", gdb.STDERR)
        gdb.flush(gdb.STDERR)
        if self.worst:
            os._exit(self.worst)
