"""Processes that run on while their threads are seen to come by places in their code, or to make system calls."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

from gdbheap import _native
from gdbheap.errors import GdbheapError, NotPermitted, Unsupported, UsageError, one_line
from gdbheap.target import refusal
from gdbheap.target.code import Condition, Place, Plan, call_places, function_places, left_patches, plan
from gdbheap.target.machine import X86_64, Machine
from gdbheap.target.procfs import Named, ProcessFolder
from gdbheap.target.running import Running

__all__ = ["MAX_STAND", "Follower", "Following", "Hit", "Live", "LocalProcess", "Program"]

# For how long a thread stands where it was seen at most, whatever becomes of us meanwhile.
MAX_STAND = 5.0
NOT_EXECUTABLE = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR)


class Hit(Protocol):
    """A thread that was seen."""

    @property
    def pid(self) -> int:
        """Its process."""

    @property
    def tid(self) -> int:
        """Its own id."""

    @property
    def place(self) -> int | None:
        """Where, as an index of ``Following.what``; None: the process runs another program from now on."""

    @property
    def registers(self) -> Sequence[int]:
        """As it had them there (``struct user_regs_struct``)."""

    @property
    def stack(self) -> bytes | None:
        """The bytes at its stack pointer as they were there; None: it stands there still, or nobody wants them."""

    @property
    def doubtful(self) -> bool:
        """Whether ``Follower.maps`` may have what it did, or not: it ran while they were read."""


class Follower(Protocol):
    """Who sees the threads: the native one, or gdb."""

    def next(self, seconds: float) -> Hit | None:
        """The next thread that is seen, which stands until this is called again; None where there was none for so long,
        or none will come (``finish`` says why). Raises KeyboardInterrupt."""

    def end(self) -> None:
        """Put the code back and let the process go; of a program that was started, wait for its end."""

    @property
    def finish(self) -> str:
        """Why no thread will come any more: "gone", "exec" or "asked"; "" while one may."""

    @property
    def descriptor(self) -> int:
        """What poll(2) reports once a thread was seen; -1 where nothing does."""

    @property
    def hits(self) -> int:
        """How many threads came."""

    @property
    def lost(self) -> int:
        """How many calls were lost on the way, as far as it is known once it has ended."""

    @property
    def stood(self) -> float:
        """For how many seconds threads stood, all together."""

    @property
    def held(self) -> float:
        """For how many seconds the whole process stood, at the beginning and at the end."""

    @property
    def maps(self) -> tuple[bytes, bytes]:
        """``/proc/PID/maps`` at the beginning and, once it has ended, at the end; empty where the process is gone."""

    @property
    def status(self) -> int | None:
        """How a program that was started ended, as os.wait gives it."""


class Following(NamedTuple):
    """Threads that are seen. ``what`` names the places: the number of a system call, or a function; ``refused`` are the
    places where they cannot be seen, with the reasons. ``stay``, where the process is to stand afterwards, leaves the
    thread that was seen last there, as if it had been stopped at that place. ``longest_wait``: for how many seconds to
    wait for one thread at most, so that what comes from elsewhere is noticed."""

    follower: Follower
    what: Sequence[int | str]
    refused: Sequence[tuple[Place, str]]
    stay: Callable[[], None] | None = None
    longest_wait: float = 0.2

    def seen(self, duration: float | None, is_over: Callable[[], bool]) -> Iterator[Hit]:
        """The threads as they come, for so many seconds (None: until nothing more comes), until ``is_over`` says so."""
        end = None if duration is None else time.monotonic() + duration
        while not is_over():
            left = self.longest_wait if end is None else min(self.longest_wait, end - time.monotonic())
            if left <= 0:
                return
            hit = self.follower.next(left)
            if hit is not None:
                yield hit
            elif self.follower.finish:
                return

    def place(self, hit: Hit) -> int | str | None:
        """What a thread did; None: it runs another program from now on."""
        return None if hit.place is None else self.what[hit.place]


class Live(Protocol):
    """A process that runs on, or a program that is started."""

    machine: Machine
    pid: int | None
    folder: ProcessFolder | None

    def calls(self, numbers: Sequence[int], waits: bool, seccomp: bool) -> AbstractContextManager[Following]:
        """See each of these system calls in this block. ``waits``: a thread stands until the next is asked for.
        ``seccomp``: also where a filter looks at its system calls. Raises GdbheapError."""

    def tracepoints(self, numbers: Sequence[int], with_stacks: bool) -> AbstractContextManager[Following]:
        """See each of these system calls in this block by a tracepoint, without any thread standing. Raises
        GdbheapError."""


class LocalProcess:
    """A process on this machine that nobody traces. Raises NoTarget, NotPermitted."""

    def __init__(self, process: Named) -> None:
        self.folder = refusal.open_folder(process)
        self.pid = self.folder.pid
        self.machine = refusal.check(self.folder)
        self._running: Running | None = None
        self._memory: _native.Descriptor | None = None

    def describe(self) -> dict[str, Any]:
        """What JSON says of it."""
        return self.running.describe()

    @property
    def running(self) -> Running:
        """Its objects and its memory, read while it runs."""
        self._hold()
        self._running = self._running or Running(self.folder, self.machine)
        return self._running

    def _hold(self) -> int:
        """Return the descriptor by which its code is written, opened before anything is read of it: what is read after
        exec() may be another program's, which this does not lead to."""
        try:
            self._memory = self._memory or self.folder.memory()
        except OSError as error:
            raise refusal.explain(self.folder, error) from None
        return self._memory.number

    def calls(self, numbers: Sequence[int], waits: bool, seccomp: bool) -> AbstractContextManager[Following]:
        """See each of these system calls that its objects make in this block."""
        self._clear()
        return self._followed(call_places(self.running, numbers), waits, seccomp)

    def tracepoints(self, numbers: Sequence[int], with_stacks: bool) -> AbstractContextManager[Following]:
        """See each of these system calls in this block by a tracepoint, without any thread standing."""
        from gdbheap.target.tracepoints import traced

        return traced(self.folder, numbers, with_stacks)

    def functions(
        self, names: Sequence[str], conditions: Sequence[Condition], seccomp: bool, limit: float = MAX_STAND
    ) -> AbstractContextManager[Following]:
        """See each call of these functions for which the conditions hold. ``limit``: for how many seconds a thread
        stands at most."""
        self._clear()
        places = [place for name in names for place in function_places(self.running, name, conditions)]
        return self._followed(places, True, seccomp, limit)

    def _clear(self) -> None:
        """Take out what a run that was killed has left: what is patched is the program's own code."""
        left = left_patches(self.running)
        if left and not _native.restore_left_patches(self.folder, self._hold(), left):
            raise GdbheapError(f"what an earlier run left in process {self.pid} cannot be taken out now: try again")

    @contextmanager
    def _followed(
        self, places: Sequence[Place], waits: bool, seccomp: bool, limit: float = MAX_STAND
    ) -> Iterator[Following]:
        planned = planned_for(self.running, places, seccomp)
        follower = _start(self.folder, self._hold(), planned, waits, limit)
        try:
            yield Following(follower, [place.what for place in planned.places], planned.refused)
        finally:
            follower.end()


def planned_for(running: Running, places: Sequence[Place], seccomp: bool) -> Plan:
    """How places of a process are patched. Raises NotPermitted, Unsupported."""
    pid = running.pid
    try:
        status = running.folder.status()
        # Refused where the memory is.
        running.folder.read("maps", 1)
    except OSError as error:
        raise refusal.explain(running.folder, error) from None
    if status.get("Seccomp", "0") != "0" and not seccomp:
        raise NotPermitted(
            f"process {pid} runs under a seccomp filter, which may refuse the signal by which its threads are seen, or"
            " kill it for that: --seccomp does it all the same"
        )
    planned = plan(running, places, int(status.get("SigCgt", "0"), 16))
    if not planned.patches:
        reason = planned.refused[0][1] if planned.refused else "no object that is loaded has the code to look at"
        raise Unsupported(f"process {pid} cannot be followed: {reason}")
    return planned


def _start(folder: ProcessFolder, memory: int, planned: Plan, waits: bool, limit: float) -> _native.Follower:
    try:
        return _native.Follower.of_process(folder, memory, planned.patches, planned.signal, waits, limit)
    except (OSError, TimeoutError) as error:
        raise refusal.explain(folder, error) from error


class Program:
    """A program that is started, with all processes that it starts: each of their calls is seen, whoever makes it."""

    machine = X86_64
    pid = folder = None

    def __init__(self, words: Sequence[str]) -> None:
        self.words = list(words)

    @contextmanager
    def calls(self, numbers: Sequence[int], waits: bool, seccomp: bool) -> Iterator[Following]:
        """Start it, and see its calls in this block, which ends when it has ended with all that it started."""
        follower = self._start(numbers, waits)
        try:
            yield Following(follower, list(numbers), [])
        finally:
            follower.end()

    def tracepoints(self, numbers: Sequence[int], with_stacks: bool) -> AbstractContextManager[Following]:
        """Raises UsageError."""
        raise UsageError("--perf is about a process that runs: give its id, or leave --perf out for a command")

    def _start(self, numbers: Sequence[int], waits: bool) -> _native.Follower:
        words = [os.fsencode(word) for word in self.words]
        try:
            return _native.Follower.of_program(words, list(numbers), waits, MAX_STAND)
        except OSError as error:
            reason = one_line(error.strerror or error)
            if error.errno in NOT_EXECUTABLE:
                raise UsageError(f"{one_line(self.words[0])!r} cannot be started: {reason}") from error
            raise NotPermitted(f"{one_line(self.words[0])!r} cannot be followed: {reason}") from error
