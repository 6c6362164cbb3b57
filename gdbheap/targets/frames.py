"""The frames on the stack of a thread: where each lies, and whose it is."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from gdbheap import _native
from gdbheap.targets.elf import ElfFile, LoadedObject
from gdbheap.targets.functions import Functions
from gdbheap.targets.target import Target, Thread
from gdbheap.targets.unwind_tables import DWARF, modules_of, room_for_tables

__all__ = ["Frame", "frames_of", "function_at"]

# Of the files of a target that were looked into.
_KNOWN: WeakKeyDictionary[ElfFile, Functions] = WeakKeyDictionary()


@dataclass(frozen=True)
class Frame:
    """A frame [start, end) on a stack, its function: by name, or as ``object+0x1234``, and where that is."""

    start: int
    end: int
    function: str
    counter: int


def frames_of(target: Target, thread: Thread) -> list[Frame]:
    """The frames of a thread, innermost first, as far as its code's tables tell; none where its registers are not
    known."""
    known = dict(enumerate(thread.registers)) | {target.machine.notes.sp: thread.sp, target.machine.notes.pc: thread.pc}
    if not all(number in known for number in DWARF):
        return []
    registers = [known[number] for number in DWARF]
    modules = modules_of(target, target.space)
    (found,) = _native.unwind_stacks(target.space, modules, room_for_tables(), [registers])
    names: dict[int, Functions] = {}
    pairs = zip(found.counters, found.pointers, found.pointers[1:])
    frames = []
    for place, (counter, start, end) in enumerate(pairs):
        # A return address is behind the call.
        at = counter - bool(place)
        frames.append(Frame(start, end, function_at(target, at, names), at))
    return frames


def function_at(target: Target, address: int, names: dict[int, Functions]) -> str:
    """The function at an address: by name, as ``object+0x1234``, or as a number where no object is. ``names``: of
    objects that were looked into, by where they begin; it is added to."""
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
