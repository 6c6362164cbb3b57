"""The frames on a thread's stack: their addresses and functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from gdbheap import _native
from gdbheap.machines.machine import Machine
from gdbheap.targets.elf import ElfFile, LoadedObject
from gdbheap.targets.functions import Functions
from gdbheap.targets.target import Target, Thread
from gdbheap.targets.unwind_tables import modules_of, room_for_tables

__all__ = ["Frame", "frame_of_register", "frame_of_variable", "frames_of", "function_at", "register_numbers"]

# The functions of files that were read before.
_KNOWN: WeakKeyDictionary[ElfFile, Functions] = WeakKeyDictionary()


@dataclass(frozen=True)
class Frame:
    """A frame [start, end) on a stack.

    ``function``: its function, by name or as ``object+0x1234``. ``counter``: the address in the function. ``saved``:
    the callee-saved registers (DWARF numbers) that the function saved, by the address at which it saved each.
    """

    start: int
    end: int
    function: str
    counter: int
    saved: dict[int, int] = field(default_factory=dict)


def frames_of(target: Target, thread: Thread) -> list[Frame]:
    """Return the frames of a thread, innermost first, as far as unwind tables allow.

    Empty if its registers are unknown.
    """
    known = dict(enumerate(thread.registers)) | {target.machine.notes.sp: thread.sp, target.machine.notes.pc: thread.pc}
    dwarf = target.machine.frames.dwarf
    if not all(number in known for number in dwarf):
        return []
    registers = [known[number] for number in dwarf]
    modules = modules_of(target, target.space)
    (found,) = _native.unwind_stacks(target.space, modules, room_for_tables(), [registers])
    names: dict[int, Functions] = {}
    pairs = zip(found.counters, found.pointers, found.pointers[1:])
    frames = []
    for place, (counter, start, end) in enumerate(pairs):
        # A return address points past the call.
        at = counter - bool(place)
        saved = {where: register for number, register, where in found.saved if number == place}
        frames.append(Frame(start, end, function_at(target, at, names), at, saved))
    return frames


def frame_of_variable(frames: Sequence[Frame], place: int, word: Callable[[int], int]) -> Frame | None:
    """Return the frame whose function owns the variable at the address ``place``.

    This is the frame that contains the address. But if the word there is a saved register, the variable belongs to the
    caller that set this register. None if no frame contains the address, or that caller is unknown. ``word`` reads the
    stack.
    """
    numbers = [number for number, frame in enumerate(frames) if frame.start <= place < frame.end]
    if not numbers:
        return None
    frame, callers = frames[numbers[0]], frames[numbers[0] + 1 :]
    return frame if place not in frame.saved else frame_of_register(callers, frame.saved[place], word(place), word)


def frame_of_register(frames: Sequence[Frame], register: int, value: int, word: Callable[[int], int]) -> Frame | None:
    """Return the innermost of ``frames`` whose function put ``value`` into a callee-saved register.

    Such a function saved another value of this register before, for its callers. None if there is no such frame.
    """
    for frame in frames:
        places = [place for place, number in frame.saved.items() if number == register]
        if any(word(place) != value for place in places):
            return frame
    return None


def register_numbers(machine: Machine, registers: Sequence[int]) -> dict[int, int]:
    """Return the values of a thread's callee-saved registers by DWARF number."""
    places = {number: machine.frames.dwarf[number] for number in machine.frames.kept}
    return {number: registers[place] for number, place in places.items() if place < len(registers)}


def function_at(target: Target, address: int, names: dict[int, Functions]) -> str:
    """Return the function at an address: by name, or as ``object+0x1234``; outside all objects, as a number.

    ``names``: the functions of objects that are known already, by the object's base; others are added.
    """
    loaded = target.object_of(address)
    if loaded is None:
        return f"{address:#x}"
    if loaded.base not in names:
        names[loaded.base] = _functions(loaded)
    found = names[loaded.base].find(address - loaded.bias)
    return found or f"{loaded.path.rsplit('/', 1)[-1]}+{address - loaded.bias:#x}"


def _functions(loaded: LoadedObject) -> Functions:
    if loaded.elf is None:
        return Functions(None, loaded.build_id)
    if loaded.elf not in _KNOWN:
        _KNOWN[loaded.elf] = _read(loaded.elf, loaded.build_id)
    return _KNOWN[loaded.elf]


def _read(elf: ElfFile, build_id: str | None) -> Functions:
    with suppress(OSError), elf.open() as stream:
        return Functions(stream, build_id, elf.room)
    return Functions(None, build_id, elf.room)
