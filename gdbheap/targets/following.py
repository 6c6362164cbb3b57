"""Follow processes while they run: catch their threads at places in their code, or at system calls."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from gdbheap import _native
from gdbheap.errors import GdbheapError, NotPermitted, Unsupported, UsageError, one_line
from gdbheap.host.procfs import Named, ProcessFolder
from gdbheap.machines.machine import THIS_MACHINE, Machine
from gdbheap.refusals import refusal
from gdbheap.targets.code_places import (
    CodePlace,
    Condition,
    PatchPlan,
    call_places,
    function_places,
    left_patches,
    plan,
)
from gdbheap.targets.hits import MAX_STAND, CaughtProcess
from gdbheap.targets.running import RunningProcess
from gdbheap.targets.stopping import ctrl_z_delayed, when_untraced
from gdbheap.targets.tracepoints import traced

__all__ = ["Live", "LocalProcess", "StartedProgram"]

NOT_EXECUTABLE = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR)
# The commands that show what grew without changing code.
GROWTH_INSTEAD = "'gdbheap growth --perf', or two snapshots and 'gdbheap diff', show what grew"
# A way to stop at a call without gdbheap.
CATCH_INSTEAD = "in gdb, a breakpoint with a condition stops at such a call"


class Live(Protocol):
    """A running process, or a program to start, whose calls can be followed.

    ``warnings``: warnings about the process, complete once it is no longer followed.
    ``unread``: warnings about files that were not read, so that names are missing.
    """

    machine: Machine
    pid: int | None
    folder: ProcessFolder | None
    warnings: list[str]
    unread: list[str]

    def calls(self, numbers: Sequence[int], waits: bool, seccomp: bool) -> AbstractContextManager[CaughtProcess]:
        """Return a context manager that reports these system calls while its block runs. Raises GdbheapError.

        ``numbers``: the numbers of the system calls.
        ``waits``: whether a thread that makes such a call stays stopped until the caller fetches the next report.
        ``seccomp``: whether to continue if a seccomp filter checks the process's system calls.
        """

    def tracepoints(self, numbers: Sequence[int], with_stacks: bool) -> AbstractContextManager[CaughtProcess]:
        """Return a context manager that reports these system calls through a tracepoint, without stopping threads.

        Raises GdbheapError.
        """


class LocalProcess:
    """A process on this machine that is not traced. Raises NoTarget, NotPermitted."""

    def __init__(self, process: Named) -> None:
        self.warnings: list[str] = []
        self.unread: list[str] = []
        self.folder = refusal.open_folder(process)
        self.pid = self.folder.pid
        self.machine = when_untraced(self.folder, lambda: refusal.check(self.folder))
        self._running: RunningProcess | None = None
        self._memory: _native.Descriptor | None = None

    def describe(self) -> dict[str, Any]:
        """Return the JSON key "target" of an answer about the process."""
        return self.running.describe()

    @property
    def running(self) -> RunningProcess:
        """The process's objects and memory, read while it runs. They are opened at the first use."""
        self._hold()
        self._running = self._running or RunningProcess(self.folder, self.machine)
        return self._running

    def _hold(self) -> int:
        """Return the descriptor through which the process's code is written.

        It is opened before any read. It never gives access to the memory of a program that the process runs later.
        Reads after exec() may come from such a program. A patch that is planned from these reads can then not be
        written.
        """
        try:
            self._memory = self._memory or self.folder.memory()
        except OSError as error:
            raise refusal.explain(self.folder, error) from None
        return self._memory.number

    def calls(self, numbers: Sequence[int], waits: bool, seccomp: bool) -> AbstractContextManager[CaughtProcess]:
        """Return a context manager that reports these system calls. Calls by code outside all loaded objects are not
        reported.
        """
        refuse_where_unpatched(self.machine, GROWTH_INSTEAD)
        self._clear()
        return self._followed(call_places(self.running, numbers), waits, seccomp)

    def tracepoints(self, numbers: Sequence[int], with_stacks: bool) -> AbstractContextManager[CaughtProcess]:
        """Return a context manager that reports these system calls through a tracepoint, without stopping threads."""
        return traced(self.folder, numbers, with_stacks)

    def functions(
        self, names: Sequence[str], conditions: Sequence[Condition], seccomp: bool, limit: float = MAX_STAND
    ) -> AbstractContextManager[CaughtProcess]:
        """Return a context manager that reports each call of these functions that meets all ``conditions``.

        ``limit``: the most seconds for which a caught thread is stopped.
        """
        refuse_where_unpatched(self.machine, CATCH_INSTEAD)
        self._clear()
        places = [place for name in names for place in function_places(self.running, name, conditions)]
        return self._followed(places, True, seccomp, limit)

    def _clear(self) -> None:
        """Restore the code where a killed gdbheap left patches, so that only the program's own code is patched.

        Raises GdbheapError if the process does not allow this now.
        """
        left = left_patches(self.running)
        if left and not _native.restore_left_patches(self.folder, self._hold(), left):
            raise GdbheapError(f"the patches of an earlier run in process {self.pid} cannot be removed now: try again")

    @contextmanager
    def _followed(
        self, places: Sequence[CodePlace], waits: bool, seccomp: bool, limit: float = MAX_STAND
    ) -> Iterator[CaughtProcess]:
        planned = planned_for(self.running, places, seccomp)
        with ctrl_z_delayed():
            follower = _native.Follower.of_process(
                self.folder, self._hold(), planned.patches, planned.signal, waits, limit
            )
            try:
                _start(follower, self.folder)
                yield CaughtProcess(follower, [place.what for place in planned.places], planned.refused)
            finally:
                follower.end()
                if follower.is_unrestored:
                    self.warnings.append(
                        f"the code of process {self.pid} is still patched, because another process shares its memory,"
                        " or one of its threads sleeps uninterruptibly (state D, such as the parent in a vfork): a"
                        " guard process (gdbheap guard) stays and removes the patches once it can"
                    )


def refuse_where_unpatched(machine: Machine, instead: str) -> None:
    """Raise Unsupported on a machine on which gdbheap cannot change code. ``instead``: what the user can do."""
    if not machine.has_patches:
        raise Unsupported(f"gdbheap can follow calls only on x86-64, because it changes code for that; {instead}")


def planned_for(running: RunningProcess, places: Sequence[CodePlace], seccomp: bool) -> PatchPlan:
    """Return the patches for these places in the code of a process.

    ``seccomp``: whether the process may have a seccomp filter. Raises NotPermitted, Unsupported.
    """
    pid = running.pid
    try:
        status = running.folder.status()
        # The kernel refuses this read for the same reasons as reading memory.
        running.folder.read("maps", 1)
        is_refused = not seccomp and running.folder.is_filtered()
    except OSError as error:
        raise refusal.explain(running.folder, error) from None
    if is_refused:
        raise NotPermitted(
            f"process {pid} or one of its threads runs under a seccomp filter, which may block the signal that gdbheap"
            " needs to follow its threads, or may kill the process because of it: --seccomp follows it anyway"
        )
    planned = plan(running, places, int(status.get("SigCgt", "0"), 16))
    if not planned.patches:
        reason = planned.refused[0][1] if planned.refused else "no loaded object contains the code to follow"
        raise Unsupported(f"process {pid} cannot be followed: {reason}")
    return planned


def _start(follower: _native.Follower, folder: ProcessFolder) -> None:
    try:
        follower.start()
    except (OSError, TimeoutError) as error:
        if isinstance(error, OSError) and error.errno == errno.EBUSY:
            raise Unsupported(
                f"process {folder.pid} cannot be followed: another process shares its memory (CLONE_VM) and may run"
                " the code that gdbheap would patch"
            ) from error
        if isinstance(error, OSError) and error.errno == errno.EOPNOTSUPP:
            raise Unsupported(
                f"process {folder.pid} cannot be followed: one of its threads redirects its system calls to a signal"
                " handler (prctl PR_SET_SYSCALL_USER_DISPATCH), which would get gdbheap's system calls too"
            ) from error
        if isinstance(error, TimeoutError) and error.errno is None:
            raise Unsupported(
                f"process {folder.pid} cannot be followed now: gdbheap patches its code only while it is stopped, and"
                f" {error} (perhaps it sleeps uninterruptibly, state D, or runs that code): try again"
            ) from error
        raise refusal.explain(folder, error) from error


class StartedProgram:
    """A program that gdbheap starts. The system calls of the program and of all its descendants are reported."""

    machine = THIS_MACHINE
    pid = folder = None

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)
        self.warnings: list[str] = []
        self.unread: list[str] = []

    @contextmanager
    def calls(self, numbers: Sequence[int], waits: bool, seccomp: bool) -> Iterator[CaughtProcess]:
        """Start the program, and report its system calls while the block runs. If it has not ended by then, it runs
        on.
        """
        words = [os.fsencode(word) for word in self.words]
        with ctrl_z_delayed():
            follower = _native.Follower.of_program(words, list(numbers), waits, MAX_STAND)
            try:
                self._start(follower)
                yield CaughtProcess(follower, list(numbers), [], wait=follower.wait)
            finally:
                follower.end()
                if follower.started and follower.finish != "gone":
                    self.warnings.append(
                        f"process {follower.started} runs on, and so do the processes that it started: a guard process"
                        " (gdbheap guard) stays and lets their calls pass"
                    )

    def tracepoints(self, numbers: Sequence[int], with_stacks: bool) -> AbstractContextManager[CaughtProcess]:
        """Raise UsageError, because tracepoints need a process that runs already."""
        raise UsageError(
            "--perf needs a process that runs already: give its id, or leave out --perf to start a command"
        )

    def _start(self, follower: _native.Follower) -> None:
        try:
            follower.start()
        except OSError as error:
            reason = one_line(error.strerror or error)
            if error.errno in NOT_EXECUTABLE:
                raise UsageError(f"{one_line(self.words[0])!r} cannot be started: {reason}") from error
            raise NotPermitted(f"{one_line(self.words[0])!r} cannot be followed: {reason}") from error
