"""Which threads may be inside an allocator, so that what it keeps may be half changed.

A thread is inside if its program counter, or a return address of one of its frames, lies in the module that holds the
allocator; so no symbols are needed. Where the module has a program's own code too, because the allocator is linked into
it, the names of functions tell, if there are any; without them a thread counts that has an address of the allocator's
own data in a register or on top of its stack, as one that changes a structure must (one that an earlier call has left
counts as well), and is not waiting in a system call which no allocator makes. A thread that was killed by a fault of
its own, or aborts, will finish nothing.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gdbheap import _native
from gdbheap.allocators.allocator import Allocator
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.frames import function_at
from gdbheap.targets.functions import Functions
from gdbheap.targets.target import AT_ENTRY, Damage, Target, Thread
from gdbheap.targets.unwind_tables import DWARF, modules_of, room_for_tables

__all__ = ["Inside", "caught", "in_hands"]

# Where no frames are known: words on top of the stack, among which a return address may be.
STACK_WORDS = 64
# Where no names are known: words on top of the stack, among which an address of the allocator's data may be.
DATA_WORDS = 256
# Frames from the innermost on: what malloc calls, and what it calls itself, lie no deeper.
MAX_FRAMES = 64
# What allocators call what they keep of themselves.
OWN_STATES = ("metadata",)
# Functions that any allocator has.
OF_MALLOC = (
    "malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "operator new",
    "operator delete",
)  # fmt: skip


def caught(found: _native.Damage, words: str) -> Damage:
    """What a thread has left half done, and will finish; ``words`` say inside of what."""
    whole = Damage.of(found, transient=True)
    return replace(whole, what=f"{words}: {whole.what}")


@dataclass
class Inside:
    """The ``threads`` that may be inside of allocators in some modules; ``unsure``: of some it is not known, as there
    are no names of functions to tell. ``failed``: one of them will never go on, and may have met what is wrong."""

    threads: list[Thread] = field(default_factory=list)
    unsure: bool = False
    failed: bool = False

    @classmethod
    def of(
        cls,
        allocator: Allocator,
        modules: Sequence[LoadedObject],
        names: tuple[str, ...],
        own: Container[str] = OWN_STATES,
    ) -> Inside:
        """``names``: the functions of these allocators begin with one of them; ``own``: the states, as the allocator
        finds them, of what it keeps of itself."""
        found, asked, target = cls(), _Asked(allocator, names, own), allocator.target
        for thread, counters in zip(target.threads, _counters(target)):
            answers = [asked.stands(thread, counters, module) for module in modules]
            if all(answer is False for answer in answers):
                continue
            found.failed |= thread.failed
            found.unsure |= True not in answers
            found.threads += [] if thread.failed else [thread]
        return found

    def excuses(self, half_done: int) -> bool:
        """Whether as many structures may be in the hands of these threads, each of which changes one at a time."""
        return not self.failed and half_done <= len(self.threads)

    @property
    def is_sure(self) -> bool:
        """Whether threads are inside that will go on."""
        return bool(self.threads) and not (self.unsure or self.failed)

    @property
    def told(self) -> dict[str, Any]:
        """What the sentence of a remark needs of them."""
        return {"threads": [thread.tid for thread in self.threads], "unsure": self.unsure}


class _Asked:
    """What is asked of one frame after the other; the names of functions are kept."""

    def __init__(self, allocator: Allocator, names: tuple[str, ...], own: Container[str]) -> None:
        self._allocator, self._target, self._names, self._own = allocator, allocator.target, names, own
        self._known: dict[int, Functions] = {}
        self._program = self._target.object_of(self._target.auxv.get(AT_ENTRY, 0))

    def stands(self, thread: Thread, counters: Sequence[int], module: LoadedObject) -> bool | None:
        """Whether a thread with these frames is inside; None where nobody knows."""
        own = [counter for counter in counters if module.contains(counter)]
        if not own or self._is_alone(module):
            return bool(own)
        named = [function_at(self._target, counter, self._known) for counter in own]
        if any(name.startswith((*OF_MALLOC, *self._names)) for name in named):
            return True
        is_told = not any("+0x" in name for name in named)
        return False if is_told or not self._holds_data(thread) else None

    def _holds_data(self, thread: Thread) -> bool:
        """Whether a thread has the address of something that the allocator keeps of itself."""
        found = map(self._allocator.find, in_hands(self._target, thread))
        return any(part is not None and part.state in self._own for part in found)

    def _is_alone(self, module: LoadedObject) -> bool:
        """Whether a module has nothing but the allocator: one that offers malloc to all others."""
        return module is not self._program and module.exported("malloc") and module.exported("free")


def in_hands(target: Target, thread: Thread) -> set[int]:
    """The words in a thread's registers and on top of its stack; none where it waits in a system call that no allocator
    makes."""
    if _waits(target, thread):
        return set()
    words = target.machine.words_of(target.space.read_available(thread.sp, target.machine.word * DATA_WORDS))
    return {*thread.registers, *words}


def _counters(target: Target) -> list[list[int]]:
    """Of each thread where its innermost frames stand, of return addresses the call before; where the tables of code
    tell nothing, words on top of its stack that may be such."""
    of_general = [dict(enumerate(thread.registers)) for thread in target.threads]
    notes = target.machine.notes
    known = [row | {notes.sp: one.sp, notes.pc: one.pc} for row, one in zip(of_general, target.threads)]
    registers = [[row.get(number, 0) for number in DWARF] for row in known]
    modules = modules_of(target, target.space)
    unwound = _native.unwind_stacks(target.space, modules, room_for_tables(), registers)
    found = []
    for thread, row, whole in zip(target.threads, unwound, known):
        counters = [counter - bool(place) for place, counter in enumerate(row.counters[:MAX_FRAMES])]
        is_followed = len(counters) > 1 and all(number in whole for number in DWARF)
        found.append(counters if is_followed else [thread.pc, *_words(target, thread)])
    return found


def _words(target: Target, thread: Thread) -> Sequence[int]:
    if _waits(target, thread):
        return ()
    return target.machine.words_of(target.space.read_available(thread.sp, target.machine.word * STACK_WORDS))


def _waits(target: Target, thread: Thread) -> bool:
    """Whether a thread waits in a system call that no allocator makes."""
    calls = target.machine.system_calls
    number = calls.number(target.space.read_available(thread.pc - calls.size, calls.size))
    return number is not None and number not in calls.of_malloc
