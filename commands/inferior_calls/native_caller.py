"""Make calls in a local process without gdb's ``call``.

In the shell gdbheap traces the process; inside gdb the calls are made on gdb's main thread. The native code
(``call.rs``, ``unwind.rs``) makes the calls. This module decides in which thread a call may be made, or says why no
thread may make it. The pattern ``KEEPER`` is for x86-64, where a call needs a ``_Keeper`` to return its result."""

from __future__ import annotations

import contextlib
import errno
import re
import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from gdbheap import _native
from gdbheap.allocators.glibc.mutation import malloc_range
from gdbheap.commands.inferior_calls.inferior_call import STATS, Bytes, CallPurpose, Libc, ProgramCounters
from gdbheap.dataclass import dataclass
from gdbheap.errors import CallEnded, GdbheapError, NoTarget, one_line
from gdbheap.targets.frames import EFFORT
from gdbheap.targets.stack_mappings import find_stacks
from gdbheap.targets.unwind_tables import modules_of, room_for_tables
from gdbheap.text import named

if TYPE_CHECKING:
    from gdbheap.targets.process import Process
    from gdbheap.targets.stack_mappings import Stack
    from gdbheap.targets.target import Thread

__all__ = ["Debugger", "NativeCaller", "Tracer", "errno_of"]

SIGN = 1 << 63
# The results of calls that are restarted: EINTR, and the kernel's own codes (include/linux/errno.h).
RESTARTED = (-4, -512, -513, -514, -516)
# Bytes of stack. The call's frame takes up to 12 KiB, binding a function lazily up to 3 KiB, printing up to 10 KiB.
ROOM = 64 << 10
GUARD_GAP = 1 << 20
CODE_LIMIT = 64 << 20
VDSO = "[vdso]"
# Code that stores rax at the address in a callee-saved register, then only moves the stack pointer up, and returns.
KEEPER = re.compile(
    rb"(?P<store>\x48\x89\x03|\x48\x89\x45\x00|\x49\x89\x04\x24|\x49\x89\x45\x00|\x49\x89\x06|\x49\x89\x07)"
    rb"(?P<add>\x48\x83\xc4[\x08\x10\x18\x20\x28\x30\x38\x40\x48\x50\x58\x60\x68\x70\x78])?"
    rb"(?P<pops>(?:\x41[\x58-\x5f]|[\x58-\x5b\x5d-\x5f])*)\xc3",
    re.DOTALL,
)
STORES = {"488903": 5, "48894500": 4, "49890424": 3, "49894500": 2, "498906": 1, "498907": 0}
FunctionCalls = Sequence[tuple[int, Sequence[int]]]
"""Addresses of functions, each with its arguments."""


@dataclass(frozen=True)
class CallPlan:
    """A call in a thread, and how it returns; see native/access/src/process/call.rs.

    ``captured``: the descriptor whose output is captured, or -1.
    ``filtered``: whether a seccomp filter checks the thread's system calls.
    ``limit``: for how many seconds the calls may take at most.
    ``leaves``: after ``limit``, gdbheap releases the thread, which finishes the call itself. Otherwise the call is
    undone.
    ``kept``: bytes to restore in any case.
    ``freed``: bytes to restore only if the call was undone.
    """

    calls: FunctionCalls
    restorer: int
    keeper: int
    keeper_register: int
    keeper_skips: int
    captured: int
    filtered: bool
    limit: float
    leaves: bool
    kept: Sequence[Bytes]
    freed: Sequence[Bytes]


class Tracer(Protocol):
    """Traces threads with ptrace, and makes calls in them. In a shell this is the native ``Stop``, inside gdb a
    ``Debugger``. The methods raise OSError.
    """

    def look(self, tid: int) -> _native.ThreadLook:
        """Return the facts that decide whether a call may be made in a thread."""
        ...

    def call(self, tid: int, plan: CallPlan) -> _native.CallResult:
        """Make the calls of a plan in a thread, and return their result."""
        ...


class Debugger:
    """The tracer inside gdb: this code runs in gdb's process, on the thread with which gdb traces."""

    def look(self, tid: int) -> _native.ThreadLook:
        return _native.look_at_thread(tid)

    def call(self, tid: int, plan: CallPlan) -> _native.CallResult:
        return _native.call_in_thread(tid, plan)


@dataclass(frozen=True)
class _Keeper:
    """Code in the process that stores a function's result in memory and then returns.

    ``register``: the register that must contain the address of this memory.
    ``skips``: how many bytes the code pops from the stack before it returns.
    """

    address: int
    register: int
    skips: int


class NativeCaller:
    """Implements ``inferior_call.Caller`` with ptrace, and chooses the thread that makes the calls. Raises
    GdbheapError."""

    def __init__(self, target: Process, tracer: Tracer, libc: Libc, allow_filters: bool, limit: float) -> None:
        self._target = target
        self._tracer = tracer
        self._libc = libc
        self._purpose: CallPurpose = libc.purpose
        self._allow_filters = allow_filters
        self._limit = limit
        self._folder = target.folder
        self._stacks = {stack.tid: stack for stack in find_stacks(target)}
        self._looks: dict[int, _native.ThreadLook] = {}
        self._check()
        self._restorer = self._find_restorer()
        self._keeper = self._find_keeper()
        # The thread that makes the calls. It is chosen on first use.
        self.tid = 0
        self._is_filtered = False

    def _check(self) -> None:
        """Raise GdbheapError if no thread of this process can make a call."""
        try:
            left = set(self._folder.tasks()) - {thread.tid for thread in self._target.threads}
        except OSError:
            raise NoTarget(f"process {self._target.pid} has ended") from None
        if left:
            raise self._purpose.refusal(f"thread {min(left)} is not stopped")
        try:
            shares = _native.has_sharer(self._folder.pid)
        except TimeoutError:
            raise self._purpose.refusal(
                "many processes hang in execve(), and any of them may share the process's memory"
            ) from None
        if shares:
            raise self._purpose.refusal("another process, which keeps running, shares the process's memory (CLONE_VM)")

    def _find_restorer(self) -> int:
        restorer = self._target.machine.restorer
        for path in (self._libc.loaded.path, VDSO):
            for start, code in self._code(path):
                place = code.find(restorer)
                if place >= 0:
                    return start + place
        raise self._purpose.error(f"{named(self._libc.loaded.path)} has no code that returns from a signal handler")

    def _find_keeper(self) -> _Keeper:
        if self._target.machine.restorer_keeps_result:
            return _Keeper(0, 0, 0)
        for path in dict.fromkeys([self._libc.loaded.path, *(loaded.path for loaded in self._target.objects)]):
            for start, code in self._code(path):
                found = KEEPER.search(code)
                if found:
                    return _keeper(start, found)
        raise self._purpose.error("the process has no code through which a call could return its result")

    def _code(self, path: str) -> Iterator[tuple[int, bytes]]:
        """Yield the address and the bytes of each executable mapping of a file."""
        for mapping in self._target.mappings:
            if mapping.path == path and mapping.perms.startswith("r-x"):
                size = min(mapping.end - mapping.start, CODE_LIMIT)
                yield mapping.start, self._target.space.read_available(mapping.start, size)

    def stacks(self) -> list[ProgramCounters]:
        """Return the stack of each thread. If no word on a thread's stack points into malloc, only its innermost frame
        is returned."""
        place = malloc_range(self._libc.loaded)
        doubtful = [thread for thread in self._target.threads if place is None or self._may_stand(thread, place)]
        dwarf = self._target.machine.frames.dwarf
        registers = [[self._look(thread.tid).registers[index] for index in dwarf] for thread in doubtful]
        modules = modules_of(self._target, self._target.space)
        found = _native.unwind_stacks(self._target.space, modules, room_for_tables(), EFFORT, registers)
        followed = {
            thread.tid: ProgramCounters(
                _name(thread), row.counters, row.cut, self._is_interrupted(thread, row.counters)
            )
            for thread, row in zip(doubtful, found)
        }
        return [followed.get(thread.tid) or self._innermost(thread) for thread in self._target.threads]

    def _innermost(self, thread: Thread) -> ProgramCounters:
        counter = self._look(thread.tid).registers[self._target.machine.notes.pc]
        return ProgramCounters(_name(thread), [counter], "", False)

    def _is_interrupted(self, thread: Thread, counters: Sequence[int]) -> bool:
        """Return whether there may be more frames beyond a signal handler's frame.

        This is possible if the address to which signal handlers return is on the stack, but not in the unwound frames.
        """
        return self._restorer not in counters and self._may_stand(thread, (self._restorer, self._restorer + 1))

    def _may_stand(self, thread: Thread, place: tuple[int, int]) -> bool:
        """Return whether a word on a thread's stack points into the range ``place``. Return True also if the thread is
        not on its own stack, because its stack is then unknown."""
        stack = self._stack_of(thread)
        sp = self._sp(thread.tid)
        if stack is None:
            return True
        lowest = max(sp - self._target.machine.red_zone, stack.start)
        return _native.mentions(self._target.space, lowest, stack.end, *place)

    def _stack_of(self, thread: Thread) -> Stack | None:
        """Return the stack on which a thread runs, if it is the thread's own. Return None if it runs on a signal
        handler's or a coroutine's stack."""
        stack = self._stacks.get(thread.tid)
        sp = self._sp(thread.tid)
        if stack is None or not stack.start <= sp < stack.end:
            return None
        main = self._target.main_stack
        is_main = main is not None and (stack.start, stack.end) == (main.start, main.end)
        return stack if is_main or sp < thread.thread_pointer < stack.end else None

    def _sp(self, tid: int) -> int:
        return self._look(tid).registers[self._target.machine.notes.sp]

    def _waits(self, tid: int) -> bool:
        """Return whether a thread was interrupted inside a system call that the kernel then restarts."""
        machine, registers = self._target.machine, self._look(tid).registers
        calls = machine.system_calls
        if calls.set_back:
            code = self._target.space.read_available(registers[machine.notes.pc], len(calls.instruction))
            return code == calls.instruction
        return registers[calls.number_register] < SIGN and registers[calls.result] - 2 * SIGN in RESTARTED

    def choose(self) -> None:
        """Choose the thread that makes the calls. A thread that waits in a system call is preferred.

        For such a thread, the kernel restarts the system call, errno is not set yet, and the thread is in no
        restartable sequence. Raises GdbheapError if no thread can make a call."""
        reasons: list[str] = []
        for wanted in (True, False):
            for thread in self._target.threads:
                if self._waits(thread.tid) is wanted:
                    reason = self.unfit(thread)
                    if not reason:
                        self.tid, self._is_filtered = thread.tid, self._mode(thread.tid) != "0"
                        return
                    reasons.append(f"thread {_name(thread)} {reason}")
        # Give the reason for the first thread that waits in a system call; without one, for the first thread.
        raise self._purpose.refusal(reasons[0] if reasons else "the process has no thread")

    def unfit(self, thread: Thread) -> str:
        """Return the reason why no function can be called in a thread; "" if a function can be called."""
        look = self._look(thread.tid)
        if look.shadow_stack:
            return "has a shadow stack, which a call from outside would break"
        if look.dispatched:
            return "has its system calls redirected to a signal handler (prctl PR_SET_SYSCALL_USER_DISPATCH)"
        if look.entering:
            return "is just entering a system call"
        if not look.restartable:
            return "sleeps in a system call that cannot be restarted after the call"
        if not look.vector_size:
            return "uses scalable vector registers, which a call cannot restore"
        if look.sequence and not self._waits(thread.tid):
            return "is inside a restartable sequence (rseq)"
        filtered = self._filtered(thread.tid)
        if filtered:
            return filtered
        stack = self._stack_of(thread)
        if stack is None or not self._is_posix(thread):
            return "does not run on a known stack of its own"
        return "" if self._has_room(stack, self._sp(thread.tid)) else f"has less than {ROOM >> 10} KiB of stack left"

    def _filtered(self, tid: int) -> str:
        """Return why seccomp forbids a call in a thread, or may kill the process for it; "" if the call is allowed.

        Mode 1 is seccomp's strict mode, mode 2 a filter (proc_pid_status(5))."""
        try:
            mode = self._mode(tid)
        except OSError:
            return "has ended"
        if mode == "1":
            return "may make no system calls (seccomp's strict mode)"
        if mode == "0" or self._allow_filters:
            return ""
        return (
            "runs under a seccomp filter, which may kill the process for an unexpected call: "
            f"{self._purpose.instead}, or --seccomp to call anyway"
        )

    def _mode(self, tid: int) -> str:
        return self._folder.status(tid).get("Seccomp", "0")

    def _is_posix(self, thread: Thread) -> bool:
        """Return whether a thread has glibc's thread-local storage, which functions of the C library need. On some
        machines, this storage contains a pointer to itself (tcbhead_t), which proves it.
        """
        if not self._target.machine.storage.has_self_pointer:
            return thread.thread_pointer != 0
        try:
            pointer = thread.thread_pointer
            return pointer != 0 and self._target.space.word(pointer + 16) == pointer
        except _native.Fault:
            return False

    def _has_room(self, stack: Stack, sp: int) -> bool:
        bottom = sp - self._target.machine.red_zone - ROOM
        mapping = self._target.mappings.find(sp)
        if mapping is None or not mapping.writable:
            return False
        if bottom >= mapping.start:
            return bottom >= stack.start
        return mapping.path == "[stack]" and self._can_grow(mapping.start, mapping.end, bottom)

    def _can_grow(self, start: int, end: int, bottom: int) -> bool:
        """Return whether the kernel can let the first thread's stack grow down to ``bottom``."""
        below = max((mapping.end for mapping in self._target.mappings if mapping.end <= start), default=0)
        with contextlib.suppress(OSError):
            limit = self._folder.soft_limit("Max stack size")
            return bottom > below + GUARD_GAP and (limit is None or end - bottom < limit)
        return False

    def _look(self, tid: int) -> _native.ThreadLook:
        if tid not in self._looks:
            try:
                self._looks[tid] = self._tracer.look(tid)
            except OSError as error:
                raise self._too_late(error) or self._purpose.refusal(
                    f"thread {tid} cannot be examined ({error.strerror})"
                ) from None
        return self._looks[tid]

    def _too_late(self, error: OSError) -> GdbheapError | None:
        """Return the error to raise if the limit for stopping the process has passed; None if ``error`` has another
        cause."""
        late = error.errno == errno.ETIME
        return (
            self._failed("the process has been stopped too long already: allow more time (--max-stop)")
            if late
            else None
        )

    def call(self, function: int, *arguments: int) -> int:
        """Call a function at an address, and return its result as a signed 64-bit number. A call that takes too long is
        undone."""
        return self._call([(function, arguments)])[0]

    def call_to_end(
        self, function: int, *arguments: int, kept: Sequence[Bytes] = (), freed: Sequence[Bytes] = ()
    ) -> int:
        """Call a function that must not be abandoned halfway. If the call takes too long, the process finishes it, and
        this method raises CallEnded. ``kept``: bytes to restore unless the process finishes the call; ``freed``: bytes
        to restore if a signal ended the call and gdbheap undid it."""
        return self._call([(function, arguments)], leaves=True, kept=kept, freed=freed)[0]

    def captured(self, descriptor: int, calls: FunctionCalls, kept: Sequence[Bytes], freed: Sequence[Bytes]) -> bytes:
        """Call functions one after another, and return what they write to a descriptor. These writes are not made.

        ``kept``: bytes to restore after the calls have returned or were undone.
        ``freed``: bytes to restore only after the calls were undone.
        """
        return self._call(calls, descriptor, kept=kept, freed=freed)[1]

    def _call(
        self,
        calls: FunctionCalls,
        descriptor: int = -1,
        leaves: bool = False,
        kept: Sequence[Bytes] = (),
        freed: Sequence[Bytes] = (),
    ) -> tuple[int, bytes]:
        if not self.tid:
            self.choose()
        for address, data in (*kept, *freed):
            self._prove_own(address, len(data))
        rows = [(function, [word & (2 * SIGN - 1) for word in arguments]) for function, arguments in calls]
        way = (self._restorer, self._keeper.address, self._keeper.register, self._keeper.skips)
        plan = CallPlan(rows, *way, descriptor, self._is_filtered, self._limit, leaves, kept, freed)
        try:
            found = self._tracer.call(self.tid, plan)
        except OSError as error:
            failed = self._failed(f"a call into thread {self.tid} failed ({error.strerror})")
            raise self._too_late(error) or failed from None
        if found.end != "returned":
            raise CallEnded(f"{self._purpose.command}: {self._ending(found.end, found.limit)}")
        return found.value - 2 * SIGN if found.value & SIGN else found.value, found.text

    def _prove_own(self, address: int, size: int) -> None:
        """Raise GdbheapError unless the bytes to be restored are private data of the process, not code or a shared
        file."""
        at, end = address, address + size
        while at < end:
            mapping = self._target.mappings.find(at)
            if mapping is None or not (mapping.writable and mapping.private) or mapping.executable:
                raise self._purpose.refusal(
                    f"the memory at {at:#x} would have to be restored, but is not private data of the process"
                )
            at = mapping.end

    def _ending(self, end: str, seconds: float) -> str:
        function, late = f"{self._purpose.function}()", f"has not returned after {seconds:.1f} s"
        if end == "left":
            return f"{function} {late}: the process finishes the call when it runs on"
        if end == "abandoned":
            return f"{function} {late} and was undone"
        if end == "gone":
            return "the process ended meanwhile"
        half = "" if self._purpose is STATS else ": the heap may be half changed"
        return f"{function} was ended by {_signal_name(int(end.split()[-1]))} and was undone{half}"

    def _failed(self, reason: str) -> GdbheapError:
        return GdbheapError(f"{self._purpose.command}: {reason}")

    def read(self, address: int, size: int) -> bytes:
        try:
            return self._target.space.read(address, size)
        except _native.Fault:
            raise self._failed(f"the memory at {address:#x} cannot be read") from None


def errno_of(libc: Libc, caller: NativeCaller) -> Bytes:
    """Return the address and the value of errno, to be restored: the thread may be between a failed system call and its
    check of errno."""
    place = caller.call(libc.address("__errno_location"))
    return place, caller.read(place, 4)


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _keeper(start: int, found: re.Match[bytes]) -> _Keeper:
    pops = found["pops"]
    # A byte 0x41 is the prefix of the pop instruction after it.
    count = len(pops) - pops.count(b"\x41")
    return _Keeper(start + found.start(), STORES[found["store"].hex()], 8 * count + (found["add"] or b"\0")[-1])


def _name(thread: Thread) -> str:
    return f"{thread.tid} ({named(one_line(thread.name or '?', 40))})"
