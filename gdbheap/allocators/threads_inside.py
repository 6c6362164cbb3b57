"""Find the threads that may be inside an allocator, so that its data may be half changed.

A thread is inside if it executes code of the module that contains the allocator. The thread's program counter or the
return address of one of its frames shows this, without symbols. If the allocator is linked into a program, the module
has the program's own code too. The names of the functions then decide, if they are known.

Without names, a thread counts as inside if an address of the allocator's own data is in a register or on top of its
stack. A thread that changes a structure must have such an address, but an earlier call may also have left one behind.

A thread does not count if it waits in a system call that no allocator makes. A thread that was killed by a fault of its
own, or that aborts, will not finish its change."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import field, replace
from typing import Any

from gdbheap import _native
from gdbheap.allocators.allocator import Allocator
from gdbheap.dataclass import dataclass
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.frames import EFFORT, FunctionNames
from gdbheap.targets.target import AT_ENTRY, Damage, Target, Thread
from gdbheap.targets.unwind_tables import modules_of, room_for_tables

__all__ = ["Inside", "caught", "in_hands"]

# The number of words on top of the stack that are searched for return addresses, if the frames are unknown.
STACK_WORDS = 64
# The number of words on top of the stack that are searched for addresses of data, if the names of functions are
# unknown.
DATA_WORDS = 256
# The number of innermost frames that are searched. When a thread is inside malloc, malloc's frame lies no deeper.
MAX_FRAMES = 64
# The values of ``Block.state`` for an allocator's own data.
OWN_STATES = ("metadata",)
# Functions that every allocator has. A thread in one of them is inside.
OF_MALLOC = (
    "malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc", "operator new",
    "operator delete",
)  # fmt: skip


def caught(found: _native.Damage, words: str) -> Damage:
    """Return the damage ``found``, marked as transient: a thread is changing the data and will complete the change.

    ``words``: the text to put before the description of the damage; it names the allocator."""
    whole = Damage.of(found, transient=True)
    return replace(whole, what=f"{words}: {whole.what}")


@dataclass
class Inside:
    """The ``threads`` that may be inside an allocator, in one of several modules.

    ``unsure``: at least one of these threads may be outside, because the names of its functions are unknown.
    ``failed``: a thread inside has failed and will never continue; the damage may be the reason.
    """

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
        """Find the threads that may be inside the allocator, in one of ``modules``.

        ``names``: prefixes of this allocator's functions. ``own``: the states that ``allocator.find`` gives for the
        allocator's own data."""
        found, asked, target = cls(), _InsideCheck(allocator, names, own), allocator.target
        for thread, counters in zip(target.threads, _counters(target)):
            answers = [asked.stands(thread, counters, module) for module in modules]
            if all(answer is False for answer in answers):
                continue
            found.failed |= thread.failed
            found.unsure |= True not in answers
            found.threads += [] if thread.failed else [thread]
        return found

    def excuses(self, half_done: int) -> bool:
        """Return whether the threads inside the allocator can explain ``half_done`` half changed structures, one for
        each thread.
        """
        return not self.failed and half_done <= len(self.threads)

    @property
    def is_sure(self) -> bool:
        """Whether it is certain that threads are inside the allocator, and that all of them will continue."""
        return bool(self.threads) and not (self.unsure or self.failed)

    @property
    def told(self) -> dict[str, Any]:
        """Return the values for the placeholders of a remark: the ids of these threads, and ``unsure``."""
        return {"threads": [thread.tid for thread in self.threads], "unsure": self.unsure}


class _InsideCheck:
    """Decides for one thread at a time whether it is inside an allocator; caches the names of functions."""

    def __init__(self, allocator: Allocator, names: tuple[str, ...], own: Container[str]) -> None:
        self._allocator, self._target, self._names, self._own = allocator, allocator.target, names, own
        self._functions = FunctionNames(allocator.target)
        self._program = self._target.object_of(self._target.auxv.get(AT_ENTRY, 0))

    def stands(self, thread: Thread, counters: Sequence[int], module: LoadedObject) -> bool | None:
        """Return whether the thread is inside the allocator in ``module``; None if unknown.

        ``counters``: the code addresses of the thread's innermost frames, or words that may be return addresses."""
        own = [counter for counter in counters if module.contains(counter)]
        if not own or self._is_alone(module):
            return bool(own)
        named = [self._functions.at(counter) for counter in own]
        if any(name.startswith((*OF_MALLOC, *self._names)) for name in named):
            return True
        is_told = not any("+0x" in name for name in named)
        return False if is_told or not self._holds_data(thread) else None

    def _holds_data(self, thread: Thread) -> bool:
        """Return whether an address of the allocator's own data is in the thread's registers or on top of its stack."""
        found = map(self._allocator.find, in_hands(self._target, thread))
        return any(part is not None and part.state in self._own for part in found)

    def _is_alone(self, module: LoadedObject) -> bool:
        """Return whether a module contains only the allocator: it is not the program, and exports malloc and free."""
        return module is not self._program and module.exported("malloc") and module.exported("free")


def in_hands(target: Target, thread: Thread) -> set[int]:
    """Return the words in a thread's registers and on top of its stack.

    The set is empty if the thread waits in a system call that no allocator makes."""
    if _waits(target, thread):
        return set()
    words = target.machine.words_of(target.space.read_available(thread.sp, target.machine.word * DATA_WORDS))
    return {*thread.registers, *words}


def _counters(target: Target) -> list[list[int]]:
    """Return, for each thread, the program counters of its innermost frames.

    An outer frame's counter is the address of its call, right before the return address. If the unwind tables give no
    frames, the words on top of the stack that may be return addresses are returned instead."""
    of_general = [dict(enumerate(thread.registers)) for thread in target.threads]
    notes = target.machine.notes
    known = [row | {notes.sp: one.sp, notes.pc: one.pc} for row, one in zip(of_general, target.threads)]
    dwarf = target.machine.frames.dwarf
    registers = [[row.get(number, 0) for number in dwarf] for row in known]
    modules = modules_of(target, target.space)
    unwound = _native.unwind_stacks(target.space, modules, room_for_tables(), EFFORT, registers)
    found = []
    for thread, row, whole in zip(target.threads, unwound, known):
        counters = [counter - bool(place) for place, counter in enumerate(row.counters[:MAX_FRAMES])]
        is_followed = len(counters) > 1 and all(number in whole for number in dwarf)
        found.append(counters if is_followed else [thread.pc, *_words(target, thread)])
    return found


def _words(target: Target, thread: Thread) -> Sequence[int]:
    if _waits(target, thread):
        return ()
    return target.machine.codes_of(target.space.read_available(thread.sp, target.machine.word * STACK_WORDS))


def _waits(target: Target, thread: Thread) -> bool:
    """Return whether a thread waits in a system call that no allocator makes."""
    number = target.system_call(thread)
    return number is not None and number not in target.machine.system_calls.of_malloc
