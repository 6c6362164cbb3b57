"""Make calls in a process behind a server. gdb makes them, in the selected thread."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import gdb

from gdbheap.commands.gdb.inferior import TargetIdentity, build, selection_kept
from gdbheap.commands.gdb.remote_target import RemoteProcess
from gdbheap.commands.inferior_calls.inferior_call import (
    STATS,
    CallPurpose,
    Libc,
    ProgramCounters,
    errno_kept,
    find_libc,
    mutexes,
    prove_safe,
)
from gdbheap.commands.inferior_calls.malloc_stats_call import malloc_stats, prove_stream
from gdbheap.errors import GdbheapError, one_line
from gdbheap.text import named

if TYPE_CHECKING:
    from gdbheap.heap import Heap
    from gdbheap.targets.elf import LoadedObject
    from gdbheap.targets.mappings import Mapping
    from gdbheap.targets.target import Target

__all__ = ["GdbCaller", "ServerCalls", "settings"]

FRAME_LIMIT = 64
CODE_LOOK = 1 << 20


class ServerCalls:
    """Implements ``inferior_call.Calls`` for the selected inferior, if it is behind a server."""

    def __init__(self, where: TargetIdentity) -> None:
        self._where = where

    def call_to_end(self, heap: Heap, purpose: CallPurpose, seccomp: bool, *arguments: int) -> int:
        """Call the function that ``purpose`` names, and return its result. gdb always waits until a call has ended."""
        with self._ready(heap, purpose, seccomp) as (libc, caller), errno_kept(libc, caller):
            return caller.call(libc.address(purpose.function), *arguments)

    @contextlib.contextmanager
    def _ready(self, heap: Heap, purpose: CallPurpose, seccomp: bool) -> Iterator[tuple[Libc, GdbCaller]]:
        """Yield the C library and a caller, after the proof that the call can neither hang nor do harm.

        ``purpose``: the function to call.
        """
        libc = find_libc(heap.target, purpose)
        caller = GdbCaller(heap.target, purpose)
        caller.check(libc.loaded, seccomp)
        with caller.ready():
            prove_safe(libc, mutexes(heap), caller)
            yield libc, caller

    def stats_text(self, heap: Heap, seccomp: bool) -> str:
        with self._ready(heap, STATS, seccomp) as (libc, caller):
            prove_stream(libc, caller)
            return malloc_stats(libc, caller)

    def again(self) -> Target:
        return build(self._where)


@contextlib.contextmanager
def settings(**wanted: str) -> Iterator[None]:
    """Change gdb's settings inside the block. In a keyword, "_" stands for a hyphen and "__" for a space. Settings that
    this gdb does not have are left out."""
    before = {}
    try:
        for key, value in wanted.items():
            name = key.replace("_", "-").replace("--", " ")
            with contextlib.suppress(gdb.error, RuntimeError):
                before[name] = gdb.parameter(name)
                gdb.execute(f"set {name} {value}", to_string=True)
        yield
    finally:
        for name, old in before.items():
            with contextlib.suppress(gdb.error):
                gdb.execute(f"set {name} {_spelled(old)}", to_string=True)


def _spelled(value: object) -> str:
    """Return the value of a setting as gdb's ``set`` accepts it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "unlimited" if value is None else str(value)


@contextlib.contextmanager
def _stop_signal_ignored() -> Iterator[None]:
    """Make gdb ignore SIGSTOP inside the block.

    A process that was stopped by SIGSTOP may have another SIGSTOP pending. Then gdb would abandon a call halfway and
    leave the process inside it."""
    row = gdb.execute("info signals SIGSTOP", to_string=True).splitlines()[-1].split()[1:4]
    words = zip(("stop", "print", "pass"), row)
    gdb.execute("handle SIGSTOP nostop noprint nopass", to_string=True)
    try:
        yield
    finally:
        before = " ".join(word if yes.startswith("Y") else f"no{word}" for word, yes in words)
        gdb.execute(f"handle SIGSTOP {before}", to_string=True)


def _version(text: str) -> int:
    """Return the major version in a text such as "13.1" or "Fedora Linux 13.2-1"; 0 if there is none."""
    found = re.search(r"\b(\d+)\.\d", text)
    return int(found[1]) if found else 0


class GdbCaller:
    """Implements ``inferior_call.Writer`` for a process behind a server: gdb makes the calls in the selected thread,
    inside ``ready()``."""

    def __init__(self, target: Target, purpose: CallPurpose) -> None:
        self._target = target
        self._purpose = purpose

    def check(self, libc: LoadedObject, allow_seccomp: bool) -> None:
        """Raise GdbheapError if gdb cannot unwind the process's stacks or restore its registers. Raise it also if a
        seccomp filter may kill the process because of a call."""
        known = {getattr(objfile, "build_id", None) for objfile in gdb.objfiles()}
        if libc.build_id not in known:
            raise GdbheapError(
                f"{self._purpose.command}: gdb has not read the process's own {os.path.basename(libc.path)}, so "
                "gdbheap cannot prove that no thread is inside malloc: if the process runs in a container, type 'set "
                "sysroot /proc/PID/root'"
            )
        assert isinstance(self._target, RemoteProcess)
        reason = self._target.unrestorable(_version(gdb.VERSION))
        if reason:
            raise self._purpose.error(f"{reason}; run gdbheap on the server's own machine")
        if self._target.status().get("Seccomp", "0") != "0" and not allow_seccomp:
            raise GdbheapError(
                f"{self._purpose.command}: the process runs under a seccomp filter, which may kill it for an "
                f"unexpected call: {self._purpose.instead}, or --seccomp to call anyway"
            )

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        """Set gdb so that, inside the block, only the selected thread runs and a failed call leaves no frame on the
        stack."""
        wanted = {
            "scheduler_locking": "on", "unwindonsignal": "on", "unwind_on_terminating_exception": "on",
            "language": "c", "backtrace__limit": "unlimited", "suppress_cli_notifications": "on",
        }  # fmt: skip
        with selection_kept(), settings(**wanted), _stop_signal_ignored():
            try:
                yield
            finally:
                self._forget_signal()

    def _forget_signal(self) -> None:
        """Execute one "nop" in the process, then restore the registers.

        A call by gdb ends with a SIGSEGV, when the function returns to an address on the stack. gdb treats this signal
        as a hit of its breakpoint at that address. gdbserver remembers this signal as the last stop, and would deliver
        it when it detaches: that would kill the process. After the step, the last stop is a SIGTRAP, which is never
        delivered (gdbserver/linux-low.cc, get_detach_signal)."""
        nop, names = self._nop(), self._target.machine.gdb
        frame = gdb.newest_frame()
        before = {name: int(frame.read_register(name)) for name in names.saved}
        gdb.execute(f"set ${names.restart} = -1", to_string=True)  # otherwise the kernel sets the program counter back
        gdb.execute(f"set ${names.pc} = {nop:#x}", to_string=True)
        gdb.execute("stepi", to_string=True)
        for name, value in before.items():
            gdb.execute(f"set ${name} = {value}", to_string=True)

    def _nop(self) -> int:
        """Return the address of a "nop" in the process's code. Any byte of code with the value of a "nop" suffices.
        Raises GdbheapError."""
        for mapping in filter(_is_code, self._target.mappings):
            found = self._target.space.read_available(mapping.start, CODE_LOOK).find(self._target.machine.gdb.nop)
            if found >= 0:
                return mapping.start + found
        raise self._purpose.error("a call through a server needs code of the process, and this code cannot be read")

    def stacks(self) -> list[ProgramCounters]:
        found = []
        with selection_kept():
            for thread in gdb.selected_inferior().threads():
                thread.switch()
                found.append(_stack(thread))
        return found

    def call(self, function: int, *arguments: int) -> int:
        """Call a function at an address, and return its result. No symbol or type of the function is needed. Raises
        GdbheapError."""
        types = ",".join(["long"] * len(arguments)) or "void"
        text = f"((long (*)({types})) {function:#x})({','.join(map(str, arguments))})"
        try:
            return int(gdb.parse_and_eval(text))
        except gdb.error as error:
            raise GdbheapError(f"{self._purpose.command}: a call into the process failed: {one_line(error)}") from None

    def read(self, address: int, size: int) -> bytes:
        try:
            return gdb.selected_inferior().read_memory(address, size).tobytes()
        except gdb.error as error:
            raise GdbheapError(f"{self._purpose.command}: {one_line(error)}") from None

    def write(self, address: int, data: bytes) -> None:
        try:
            gdb.selected_inferior().write_memory(address, data)
        except gdb.error as error:
            raise GdbheapError(f"{self._purpose.command}: {one_line(error)}") from None


def _is_code(mapping: Mapping) -> bool:
    return mapping.perms.startswith("r-x") and mapping.path.startswith("/")


def _stack(thread: gdb.InferiorThread) -> ProgramCounters:
    """Return the program counters of the thread, which must be the selected one. Inlined frames have no program counter
    of their own."""
    name = f"{thread.ptid[1] or thread.ptid[0]} ({named(one_line(thread.name or '?', 40))})"
    counters: list[int] = []
    frame: gdb.Frame | None = None
    try:
        frame = gdb.newest_frame()
        while frame is not None and len(counters) < FRAME_LIMIT:
            if frame.type() != gdb.INLINE_FRAME:
                counters.append(int(frame.pc()))
            last, frame = frame, frame.older()
    except gdb.error as error:
        return ProgramCounters(name, counters, str(error))
    if frame is None and last.unwind_stop_reason() not in (gdb.FRAME_UNWIND_NO_REASON, gdb.FRAME_UNWIND_OUTERMOST):
        return ProgramCounters(name, counters, gdb.frame_stop_reason_string(last.unwind_stop_reason()))
    return ProgramCounters(name, counters, "")
