"""Merge the C frames and the Python frames of a thread into one stack. The thread is stopped only for a moment."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from io import BytesIO
from typing import Any, BinaryIO

from gdbheap.contents.python.running.interpreter import Interpreter
from gdbheap.contents.python.running.quick_stacks import PythonStack, QuickStacks, RawFrame
from gdbheap.dataclass import dataclass
from gdbheap.documents import renamed_keys
from gdbheap.errors import Fault, GdbheapError, NotAPython, one_line
from gdbheap.host.procfs import Named
from gdbheap.layout.facts import Facts
from gdbheap.machines.machine import Machine
from gdbheap.stack_frames import NATIVE, PYTHON, StackFrame, few_inlined, frames_at
from gdbheap.targets.elf import LoadedObject, load_bias, read_segments
from gdbheap.targets.functions import Functions
from gdbheap.targets.running import PERIOD, RunningProcess
from gdbheap.targets.start_environment import path_as_started
from gdbheap.targets.target import AT_SYSINFO_EHDR

__all__ = ["AllocatingCall", "CapturedStack", "NativeFrame", "Stacks", "Weighted", "merge"]

# The function that evaluates bytecode, by Python's major version. One call of it runs one or more Python frames.
EVALUATORS = {2: "PyEval_EvalFrameEx", 3: "_PyEval_EvalFrameDefault"}
# The prefix of the functions that run one instruction each, in an interpreter built with tail calls (3.14). The
# evaluator calls these functions.
HANDLER = "_TAIL_CALL_"
NO_OBJECT = "[code outside any file]"
MAX_VDSO = 64 << 10
ERRORS = (Fault, GdbheapError, OSError, OverflowError, ValueError)


@dataclass(frozen=True)
class AllocatingCall:
    """A recorded call that allocated a block.

    ``address``: the block's address, which the call returned.
    ``asked``: the requested bytes.
    ``frames``: the call's stack, outermost frame first.
    """

    address: int
    asked: int
    frames: list[StackFrame]

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the record ``content`` of a format 1 file with today's key names."""
        return renamed_keys(content, {"size": "asked"})


Weighted = tuple[Sequence[StackFrame], int, int]
"""A stack, outermost frame first; its weight (bytes unless stated otherwise); and the number of calls that have this
stack.
"""


@dataclass(frozen=True)
class CapturedStack:
    """A captured stack, innermost frame first.

    ``places``: for each native frame the object, an address in its function, and the function's start (0 if unknown).
    ``cut``: why the stack ends early, "" if it is complete.
    ``python``: the thread's Python frames, or None if it has none.
    """

    places: tuple[tuple[LoadedObject | None, int, int], ...]
    cut: str
    python: PythonStack | None = field(repr=False)

    @property
    def frames(self) -> int:
        """The number of frames that were captured."""
        return len(self.places) + sum(map(len, self.python.groups if self.python is not None else ()))


@dataclass(frozen=True)
class NativeFrame:
    """A native frame.

    ``evaluates``: whether it is a call of the interpreter's loop, which runs Python frames.
    ``interpreters``: whether its code belongs to the interpreter.
    """

    frame: StackFrame
    evaluates: bool
    interpreters: bool


class Stacks:
    """Reads the stacks of single stopped threads of a live process; its other threads keep running.

    Objects that are loaded later, and a Python that starts later, are noticed. After an exec() of the process nothing
    more can be read, and a new Stacks is needed. Raises NoTarget, NotPermitted.
    """

    def __init__(self, process: Named, machine: Machine) -> None:
        self._running = RunningProcess(process, machine)
        # The open files, by path and build-id. They are opened when their objects are first seen, because an ended
        # process has no files.
        self._files: dict[tuple[str, str | None], BinaryIO | None] = {}
        self._functions: dict[tuple[str, str | None], Functions] = {}
        self._names: dict[tuple[LoadedObject, int], list[NativeFrame]] = {}
        # The frames of a recursion are the same objects, because a stack may have thousands of frames.
        self._pythons: dict[tuple[str, str, int | None], StackFrame] = {}
        # The paths of the loaded objects, by path. For the program it is the path that started it, which may be a link.
        # It is read now, because an ended process has no memory.
        self._started = {loaded.path: path_as_started(self._running, loaded) for loaded in self._running.objects}
        self._interpreter: Interpreter | None = None
        self._calls: QuickStacks | None = None
        self._tried = (0, 0.0)
        self._find_python()

    def capture(self, registers: Sequence[int], thread_pointer: int) -> CapturedStack:
        """Return the stack of a stopped thread with these registers (in DWARF's numbering, the program counter last).

        The function is quick and never raises: frames that cannot be read are missing, and ``cut`` says so.
        """
        places, cut = self._places(registers, None)
        return CapturedStack(places, cut, self._python(thread_pointer))

    def capture_copy(self, registers: Sequence[int], stack: bytes) -> CapturedStack:
        """Return the C frames of a thread that runs again, from an earlier copy of the bytes at its stack pointer.

        Python's frames are missing, because they are stored elsewhere.
        """
        places, cut = self._places(registers, stack)
        return CapturedStack(places, cut, None)

    @property
    def unread(self) -> list[str]:
        """Lines about the process's files that could not be read so far. Without these files names may be missing."""
        return self._running.unread

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return not self._running.folder.is_there()

    def keep_files(self) -> None:
        """Open the files of all loaded objects now, because the process may have ended by the time a stack is named."""
        for loaded in self._running.objects:
            self._met(loaded)

    def _places(
        self, registers: Sequence[int], stack: bytes | None
    ) -> tuple[tuple[tuple[LoadedObject | None, int, int], ...], str]:
        try:
            found = self._running.unwind(registers, stack)
            counters, starts, cut = found.counters, found.starts, found.cut
        except ERRORS as error:
            counters, starts, cut = list(registers[-1:]), [0], one_line(error)
        # If a call does not return, its return address may lie after the end of the calling function.
        exact = [counter - bool(index) for index, counter in enumerate(counters)]
        pairs = list(zip(exact, starts))
        # Equal frames share one entry, because a recursion may have thousands of them.
        places = {(at, start): (self._met(self._running.code_object(at)), max(at, start), start) for at, start in pairs}
        return tuple([places[pair] for pair in pairs]), cut

    def capture_registers(self, registers: Sequence[int], stack: bytes | None = None) -> CapturedStack:
        """Return the stack for registers in the kernel's order (as in ``machine.notes``).

        ``stack``: a copy of the bytes at the stack pointer, if the thread has run on; else None.
        """
        machine = self._running.machine
        numbered = [registers[place] for place in machine.frames.dwarf]
        if stack is not None:
            return self.capture_copy(numbered, stack)
        pointer = machine.notes.thread_pointer
        return self.capture(numbered, 0 if pointer is None else registers[pointer])

    def _met(self, loaded: LoadedObject | None) -> LoadedObject | None:
        if loaded is not None and (loaded.path, loaded.build_id) not in self._files:
            try:
                found = loaded.elf.open() if loaded.elf is not None else None
            except OSError:
                found = None
            self._files[loaded.path, loaded.build_id] = found
        return loaded

    def _python(self, thread_pointer: int) -> PythonStack | None:
        try:
            self._find_python()
            if self._calls is None:
                return None
            self._calls.read_through(self._running.space)
            return self._calls.take(thread_pointer)
        except ERRORS:
            return None

    def _find_python(self) -> None:
        """Find the interpreter.

        The interpreter may be loaded later, or not be ready yet. So the search is repeated until the interpreter has
        threads.
        """
        if self._calls is not None and self._calls.has_threads:
            return
        now, (age, tried) = time.monotonic(), self._tried
        if self._running.age == age and now - tried < PERIOD:
            return
        self._tried = self._running.age, now
        try:
            self._interpreter = Interpreter(self._running, Facts())
            self._calls = QuickStacks(self._running.space, self._interpreter.module, self._interpreter.release)
        except NotAPython:
            self._interpreter = self._calls = None
            # Do not search again until other objects are loaded.
            self._tried = self._running.age, math.inf
        except ERRORS:
            self._interpreter = self._calls = None

    def name(self, captured: CapturedStack) -> tuple[StackFrame, ...]:
        """Return the frames of a captured stack, outermost first. The process may have run on, or have ended."""
        natives = [
            frame for frames in few_inlined(self._named(*place) for place in captured.places) for frame in frames
        ]
        python = captured.python
        groups = [] if python is None else [[self._python_frame(frame) for frame in group] for group in python.groups]
        torn = python is not None and python.torn
        return tuple(reversed(merge(natives, groups, bool(captured.cut), torn)))

    def _python_frame(self, frame: RawFrame) -> StackFrame:
        assert self._calls is not None
        key = frame.code.name, frame.code.file, self._calls.line(frame)
        if key not in self._pythons:
            self._pythons[key] = StackFrame(*key, PYTHON)
        return self._pythons[key]

    def _named(self, loaded: LoadedObject | None, place: int, start: int) -> list[NativeFrame]:
        if loaded is None:
            return [self._without_object(place)]
        key = loaded, place
        if key not in self._names:
            self._names[key] = self._read_names(loaded, place, start)
        return self._names[key]

    def _without_object(self, place: int) -> NativeFrame:
        vdso = self._running.mappings.find(self._running.auxv.get(AT_SYSINFO_EHDR, 0))
        if vdso is None or place not in vdso:
            return NativeFrame(StackFrame(NO_OBJECT, "", None, NATIVE), False, False)
        name = self._of_file(vdso.path, None, self._read_vdso).find(place - self._vdso_bias(vdso.start))
        return NativeFrame(StackFrame(name or vdso.path, vdso.path, None, NATIVE), False, False)

    def _vdso_bias(self, start: int) -> int:
        machine = self._running.machine
        return load_bias(machine, read_segments(machine, self._running.space, start), start) or 0

    def _read_vdso(self) -> Functions:
        base = self._running.auxv.get(AT_SYSINFO_EHDR, 0)
        return Functions(BytesIO(self._running.space.read_available(base, MAX_VDSO)), None, self._running.symbol_room)

    def _of_file(self, path: str, build_id: str | None, make: Callable[[], Functions]) -> Functions:
        key = path, build_id
        if key not in self._functions:
            self._functions[key] = make()
        return self._functions[key]

    def _read_functions(self, loaded: LoadedObject) -> Functions:
        file = self._files.get((loaded.path, loaded.build_id))
        if file is None:
            return Functions(None, loaded.build_id, self._running.symbol_room)
        with file:
            return Functions(file, loaded.build_id, self._running.symbol_room)

    def _read_names(self, loaded: LoadedObject, place: int, start: int) -> list[NativeFrame]:
        functions = self._of_file(loaded.path, loaded.build_id, lambda: self._read_functions(loaded))
        known = functions.find(place - loaded.bias)
        own = self._interpreter is not None and loaded.base == self._interpreter.module.base
        path = self._started.get(loaded.path, loaded.path)
        name = known or f"{path.rsplit('/', 1)[-1]}+{(start or place) - loaded.bias:#x}"
        major = self._interpreter.release.major if self._interpreter is not None else 0
        if own:
            return [NativeFrame(StackFrame(name, path, None, NATIVE), known == EVALUATORS.get(major), own)]
        frames = frames_at(functions, place - loaded.bias, name, path)
        return [NativeFrame(frame, False, own) for frame in frames]


def merge(
    natives: Sequence[NativeFrame], groups: Sequence[Sequence[StackFrame]], cut: bool, torn: bool
) -> list[StackFrame]:
    """Merge native frames and groups of Python frames into one stack, innermost first.

    Each group has the frames that one call of the interpreter's loop (an evaluator) runs. The evaluators are replaced
    by their Python frames. Frames of the interpreter that are not evaluators are left out, unless they are inside the
    innermost Python frame. ``cut``: whether there may be more native frames further out; ``torn``: whether there may be
    more Python frames. If the numbers of evaluators and groups differ, the native frames inside the innermost evaluator
    come first, then all Python frames.
    """
    places = [index for index, native in enumerate(natives) if native.evaluates]
    if not any(groups):
        return [native.frame for native in natives]
    inner = natives[: places[0]] if places else natives
    merged = [native.frame for native in inner if not (native.interpreters and native.frame.name.startswith(HANDLER))]
    if not _fits(len(places), len(groups), cut, torn):
        return merged + [frame for group in groups for frame in group]
    for number, group in enumerate(groups):
        merged += group
        if number < len(places):
            end = places[number + 1] if number + 1 < len(places) else len(natives)
            merged += [native.frame for native in natives[places[number] + 1 : end] if not native.interpreters]
    return merged + _beyond(natives, places[len(groups) :])


def _fits(evaluators: int, groups: int, cut: bool, torn: bool) -> bool:
    """Return whether native frames of the interpreter's loop and groups of Python frames can be paired, beginning with
    the innermost.
    """
    return evaluators == groups or (cut and evaluators < groups) or (torn and groups < evaluators)


def _beyond(natives: Sequence[NativeFrame], places: Sequence[int]) -> list[StackFrame]:
    """Return the native frames that begin at index ``places[0]``; no frames if ``places`` is empty.

    ``places``: the indexes of those frames of the interpreter's loop whose Python frames could not be read.
    """
    return [native.frame for native in natives[places[0] :]] if places else []
