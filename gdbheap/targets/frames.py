"""The frames on a thread's stack: their addresses and functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from weakref import WeakKeyDictionary

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.machines.machine import Machine
from gdbheap.targets.elf import ElfFile, LoadedObject
from gdbheap.targets.functions import Functions
from gdbheap.targets.start_environment import path_as_started
from gdbheap.targets.target import Target, Thread
from gdbheap.targets.unwind_tables import Module, modules_of, room_for_tables

__all__ = [
    "EFFORT",
    "Frame",
    "FunctionNames",
    "ThreadFrames",
    "frame_of_register",
    "frame_of_variable",
    "functions_of",
    "register_numbers",
]

# The bytes of entries in unwind tables that all frames of all threads may use together. Each frame counts as another
# KiB, so about 250,000 frames fit.
EFFORT = 256 << 20

# The functions of files that were read before.
_KNOWN: WeakKeyDictionary[ElfFile, Functions] = WeakKeyDictionary()


@dataclass(frozen=True)
class Frame:
    """A frame [start, end) on a stack.

    ``function``: its function, by name or as ``object+0x1234``.
    ``counter``: the address of its current instruction.
    ``saved``: {address on the stack: DWARF number} of the callee-saved registers that the function saved there.
    """

    start: int
    end: int
    function: str
    counter: int
    saved: dict[int, int] = field(default_factory=dict)


class ThreadFrames:
    """The frames of a target's threads. Each thread is read once, and the work for all threads has one limit."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._modules: list[Module] | None = None
        self._names = FunctionNames(target)
        self._known: dict[int, list[Frame]] = {}
        self._effort = EFFORT

    def of(self, thread: Thread) -> list[Frame]:
        """Return the frames of a thread, innermost first, as far as unwind tables and the limit allow.

        The list is empty if the thread's registers are unknown.
        """
        if thread.tid not in self._known:
            self._known[thread.tid] = self._read(thread)
        return self._known[thread.tid]

    def _read(self, thread: Thread) -> list[Frame]:
        target, notes = self._target, self._target.machine.notes
        known = dict(enumerate(thread.registers)) | {notes.sp: thread.sp, notes.pc: thread.pc}
        dwarf = target.machine.frames.dwarf
        if not all(number in known for number in dwarf):
            return []
        if self._modules is None:
            self._modules = modules_of(target, target.space)
        registers = [known[number] for number in dwarf]
        (found,) = _native.unwind_stacks(target.space, self._modules, room_for_tables(), self._effort, [registers])
        self._effort = max(0, self._effort - found.taken)
        saved: dict[int, dict[int, int]] = defaultdict(dict)
        for place, register, where in found.saved:
            saved[place][where] = register
        frames = []
        for place, (counter, start, end) in enumerate(zip(found.counters, found.pointers, found.pointers[1:])):
            # A return address points past the call.
            at = counter - bool(place)
            frames.append(Frame(start, end, self._names.at(at), at, saved.get(place, {})))
        return frames


def frame_of_variable(frames: Sequence[Frame], place: int, word: Callable[[int], int]) -> Frame | None:
    """Return the frame whose function owns the variable at the address ``place``.

    Usually it is the frame that contains the address. If the word there is a saved register, it is the frame of the
    caller that set this register. Return None if no frame contains the address, or if that caller is unknown.
    ``word``: a function that reads a word of the stack.
    """
    numbers = [number for number, frame in enumerate(frames) if frame.start <= place < frame.end]
    if not numbers:
        return None
    frame, callers = frames[numbers[0]], frames[numbers[0] + 1 :]
    return frame if place not in frame.saved else frame_of_register(callers, frame.saved[place], word(place), word)


def frame_of_register(frames: Sequence[Frame], register: int, value: int, word: Callable[[int], int]) -> Frame | None:
    """Return the innermost of ``frames`` whose function put ``value`` into a callee-saved register.

    Before that, the function saved the old value of the register for its callers. Return None if there is no such
    frame.
    """
    for frame in frames:
        places = [place for place, number in frame.saved.items() if number == register]
        if any(word(place) != value for place in places):
            return frame
    return None


def register_numbers(machine: Machine, registers: Sequence[int]) -> dict[int, int]:
    """Return {DWARF number: value} of a thread's callee-saved registers."""
    places = {number: machine.frames.dwarf[number] for number in machine.frames.kept}
    return {number: registers[place] for number, place in places.items() if place < len(registers)}


class FunctionNames:
    """Names the functions of a target's code. The symbols and the path of each object are read once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._functions: dict[int, Functions] = {}
        self._paths: dict[int, str] = {}

    def at(self, address: int) -> str:
        """Return the function at an address: by name, or as ``object+0x1234``; outside all objects, as a number."""
        loaded = self._target.object_of(address)
        if loaded is None:
            return f"{address:#x}"
        if loaded.base not in self._functions:
            self._functions[loaded.base] = functions_of(loaded)
        found = self._functions[loaded.base].find(address - loaded.bias)
        return found or f"{self.path(loaded).rsplit('/', 1)[-1]}+{address - loaded.bias:#x}"

    def path(self, loaded: LoadedObject) -> str:
        """Return the path of a loaded object. For the program, return the path by which it was started, perhaps a
        link.
        """
        if loaded.base not in self._paths:
            self._paths[loaded.base] = path_as_started(self._target, loaded)
        return self._paths[loaded.base]


def functions_of(loaded: LoadedObject) -> Functions:
    """Return the functions of a loaded object, read once for each file."""
    if loaded.elf is None:
        return Functions(None, loaded.build_id)
    if loaded.elf not in _KNOWN:
        _KNOWN[loaded.elf] = _read(loaded.elf, loaded.build_id)
    return _KNOWN[loaded.elf]


def _read(elf: ElfFile, build_id: str | None) -> Functions:
    with suppress(OSError), elf.open() as stream:
        return Functions(stream, build_id, elf.room)
    return Functions(None, build_id, elf.room)
