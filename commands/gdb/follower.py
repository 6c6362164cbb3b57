"""Follow a process that gdb traces. gdbheap cannot trace it at the same time, so gdb runs it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

import gdb

from gdbheap import _native
from gdbheap.commands.gdb.inferior import TargetIdentity, reread, selection_kept
from gdbheap.commands.gdb.output import write
from gdbheap.errors import CallEnded, GdbheapError, UsageError, one_line
from gdbheap.host import procfs
from gdbheap.machines.machine import Machine
from gdbheap.refusals import refusal
from gdbheap.targets.code_places import CodePlace, PatchPlan, left_patches
from gdbheap.targets.following import LocalProcess, planned_for
from gdbheap.targets.hits import MAX_STAND, CaughtProcess

__all__ = ["GdbProcess"]

FRAME_BYTES = 96
STDOUT = 1
# The longest wait, in seconds. The process is stopped each time that a wait ends, so waits are long; gdb handles Ctrl-C
# itself.
LONGEST_WAIT = 3600.0


class GdbProcess(LocalProcess):
    """The selected inferior, as a process that can be followed. It is stopped, runs on this machine, and is traced by
    gdb."""

    def __init__(self, where: TargetIdentity) -> None:
        super().__init__(where.pid)

    def _clear(self) -> None:
        for left in left_patches(self.running):
            if self.running.space.read_available(left.address, len(left.replacement)) == left.replacement:
                _write(self._hold(), [(left.address, left.original)])

    def tracepoints(self, numbers: Sequence[int], with_stacks: bool) -> NoReturn:
        """Raise UsageError, because tracepoints cannot be used for a process that gdb holds."""
        raise UsageError(
            "--perf needs a process to which gdb is not attached: use --perf in a shell (gdbheap growth PID --perf)"
        )

    @contextmanager
    def _followed(
        self, places: Sequence[CodePlace], waits: bool, seccomp: bool, limit: float = MAX_STAND
    ) -> Iterator[CaughtProcess]:
        planned = planned_for(self.running, places, seccomp)
        follower = GdbFollower(self.pid, self._hold(), self.machine, planned)
        try:
            what = [place.what for place in planned.places]
            yield CaughtProcess(follower, what, planned.refused, follower.stand_at_call, LONGEST_WAIT)
        finally:
            follower.end()


class _Hit(NamedTuple):
    pid: int
    tid: int
    place: int
    registers: list[int]
    stack: bytes | None = None
    doubtful: bool = False


class _Stop(NamedTuple):
    """The reason why the process has stopped, as gdb reports it. ``signal``: the signal that stopped it, None or "" if
    there was none. ``gone``: whether the process has ended."""

    signal: str | None
    gone: bool


class GdbFollower:
    """Runs the process with gdb's ``continue`` until a thread reaches one of the addresses to watch. Raises
    GdbheapError.
    """

    status = None
    descriptor = -1
    lost = 0

    def __init__(self, pid: int, memory: int, machine: Machine, planned: PatchPlan) -> None:
        self._pid, self._memory, self._machine, self._planned = pid, memory, machine, planned
        self._signal = signal.Signals(planned.signal).name
        self._handling = _handling(self._signal)
        self._traps = {patch.trap: index for index, patch in enumerate(planned.patches)}
        self.hits, self.stood, self.held = 0, 0.0, 0.0
        self.finish = ""
        self._met: float | None = None
        self._last: tuple[int, int] | None = None
        self.maps = b"", b""
        self._put_in()

    def _put_in(self) -> None:
        if any(self._is_inside(counter) for counter in _counters()):
            raise GdbheapError(
                "a thread is stopped in code that gdbheap would change: let the thread run on, and try again"
            )
        gdb.execute(f"handle {self._signal} stop print nopass", to_string=True)
        self.maps = _maps(self._pid), b""
        _write(self._memory, [(patch.stub_at, patch.stub) for patch in self._planned.patches])
        _write(self._memory, [(patch.address, patch.replacement) for patch in self._planned.patches])

    def _is_inside(self, counter: int) -> bool:
        patches = self._planned.patches
        return any(patch.address < counter < patch.address + len(patch.original) for patch in patches)

    def next(self, seconds: float) -> _Hit | None:
        """Run the process until a thread reaches a watched address, and return this hit; None if no thread does within
        ``seconds``. All threads stay stopped until this method is called again.
        """
        if self.finish:
            return None
        self._go_on()
        stop = _run(seconds)
        if stop.gone:
            self.finish = "gone"
            return None
        hit = self._hit(stop)
        if hit is None and stop.signal not in (None, "SIGINT"):
            # The user has a breakpoint here, or a signal came: leave the process stopped.
            self.finish = "asked"
            write(
                f"gdbheap: the process stopped because of {stop.signal or 'a breakpoint'}, and stays stopped\n",
                gdb.STDERR,
            )
        return hit

    def _go_on(self) -> None:
        """Add the time since the last hit to the time for which the process was stopped. gdb stops all threads at each
        hit."""
        if self._met is not None:
            stood = time.monotonic() - self._met
            self.stood, self.held, self._met = self.stood + stood, self.held + stood, None

    def _hit(self, stop: _Stop) -> _Hit | None:
        if stop.signal != self._signal:
            return None
        registers, notes = _registers(self._machine), self._machine.notes
        index = self._traps.get(registers[notes.pc])
        if index is None:
            return None
        self._met = time.monotonic()
        self.hits += 1
        frame = gdb.selected_inferior().read_memory(registers[notes.sp], FRAME_BYTES).tobytes()
        tid = gdb.selected_thread().ptid[1]
        before = _native.registers_before_trap(registers, frame, self._planned.patches[index].seen_at)
        self._last = tid, self._planned.patches[index].seen_at
        return _Hit(self._pid, tid, index, before)

    def stand_at_call(self) -> None:
        """Set the thread of the last hit back from gdbheap's trap to the call instruction, with the registers that it
        had there. Raises CallEnded if that fails.
        """
        if self._last is None or self._met is None:
            return
        tid, address = self._last
        try:
            _native.return_from_trap(tid, address)
        except OSError as error:
            raise CallEnded(f"thread {tid} cannot be put back to where it was: {one_line(error)}") from error
        reread()

    def end(self) -> None:
        """Restore the process's code. gdb keeps the process stopped."""
        self._go_on()
        if self.finish != "gone" and gdb.selected_inferior().pid == self._pid:
            # By now the process may run another program, so that the write fails.
            with contextlib.suppress(GdbheapError):
                _write(self._memory, [(patch.address, patch.original) for patch in self._planned.patches])
            self.maps = self.maps[0], _maps(self._pid)
        gdb.execute(f"handle {self._signal} {self._handling}", to_string=True)
        self.finish = self.finish or "asked"


def _write(memory: int, rows: Sequence[tuple[int, bytes]]) -> None:
    """Write code through ``memory``, an open descriptor. After an exec the write fails, whereas gdb would write into
    the new program. Raises GdbheapError."""
    for address, data in rows:
        try:
            written = os.pwrite(memory, data, address)
        except (OSError, OverflowError) as error:
            raise GdbheapError(f"the code at {address:#x} cannot be changed: {one_line(error)}") from None
        if written < len(data):
            raise GdbheapError("the code cannot be changed: the process runs another program, or has ended")
    reread()


def _maps(pid: int) -> bytes:
    with contextlib.suppress(GdbheapError, OSError):
        return refusal.open_folder(pid).read("maps", procfs.TABLE_LIMIT)
    return b""


def _counters() -> list[int]:
    found = []
    with selection_kept():
        for thread in gdb.selected_inferior().threads():
            thread.switch()
            found.append(int(gdb.newest_frame().pc()))
    return found


def _registers(machine: Machine) -> list[int]:
    frame = gdb.newest_frame()
    return [int(frame.read_register(name)) % machine.address_end for name in machine.gdb.registers]


def _handling(name: str) -> str:
    """Return how gdb handles a signal, in the words of its command ``handle``. The words are read from a line such as
    "SIGURG No No Yes …"."""
    line = gdb.execute(f"info signals {name}", to_string=True).splitlines()[-1].split()
    words = zip(("stop", "print", "pass"), line[1:4])
    return " ".join(word if answer == "Yes" else f"no{word}" for word, answer in words)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the messages that gdb prints at each stop, inside the block. The messages come from gdb's event loop."""
    gdb.flush()
    kept, nowhere = os.dup(STDOUT), os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.dup2(nowhere, STDOUT)
        yield
    finally:
        gdb.flush()
        os.dup2(kept, STDOUT)
        os.close(kept)
        os.close(nowhere)


def _run(seconds: float) -> _Stop:
    """Run the process until it stops, but at most this many seconds. Raises KeyboardInterrupt for Ctrl-C."""
    stops: list[_Stop] = []
    timed_out = threading.Event()

    def stopped(event: gdb.Event) -> None:
        found = event.stop_signal if isinstance(event, gdb.SignalEvent) else ""
        stops.append(_Stop(found, False))

    def exited(event: gdb.Event) -> None:
        stops.append(_Stop(None, True))

    def interrupt() -> None:
        timed_out.set()
        gdb.post_event(lambda: gdb.execute("interrupt", to_string=True))

    timer = threading.Timer(seconds, interrupt)
    gdb.events.stop.connect(stopped)
    gdb.events.exited.connect(exited)
    timer.start()
    try:
        with _quiet():
            gdb.execute("continue", to_string=True)
    finally:
        timer.cancel()
        gdb.events.stop.disconnect(stopped)
        gdb.events.exited.disconnect(exited)
    stop = stops[-1] if stops else _Stop(None, False)
    if stop.signal == "SIGINT" and not timed_out.is_set():
        raise KeyboardInterrupt
    return stop
