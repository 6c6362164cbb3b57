"""Memory outside of the heaps that holds pointers into them: static data of the loaded objects, and the threads'."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gdbheap import _native
from gdbheap.target.elf import LoadedObject
from gdbheap.target.image import PT_TLS
from gdbheap.target.ranges import OwnedRange, Ranges, joined, subtract
from gdbheap.target.target import Target

INTERPRETER = "the interpreter"
THREADS = "threads"
# On one side of the thread pointer lies static thread-local data, at most this much; on the other struct pthread.
MAX_TLS, DESCRIPTOR = 16 << 10, 4 << 10


class Register(NamedTuple):
    """What a register of a thread holds, and where the thread's stack ends."""

    stack_pointer: int
    value: int


class Roots:
    """``names``: who the roots are, the interpreter first; ``ranges``: by the number of the name; ``last``: the
    number of the threads, whose stacks hold many pointers that are left over; ``registers``: those of
    the threads: in the middle of a function nothing else may lead to a block. ``thread_data``: what belongs
    to the threads without doubt, ``stacks``: what is in use of their stacks beside that.

    ``live``: what may be in use of the threads' stacks; ``loose``: of coroutines' and signals', see ``live_stacks``."""

    def __init__(self, target: Target, interpreter: LoadedObject, live: Ranges, loose: Ranges) -> None:
        self.names = [INTERPRETER]
        self.ranges: list[OwnedRange] = []
        heaps = [(mapping.start, mapping.end) for mapping in target.mappings if mapping.anonymous and mapping.writable]
        for loaded in [interpreter] + [other for other in target.objects if other is not interpreter]:
            name = INTERPRETER if loaded is interpreter else loaded.path.rsplit("/", 1)[-1]
            self._add(target, name, subtract(loaded.writable_ranges(), _linked(target, loaded, heaps)))
        live = joined(sorted(live + loose))
        self._add(target, THREADS, live)
        self._add(target, THREADS, _thread_data(target, MAX_TLS))
        self.last = self.names.index(THREADS)
        self.thread_data = _thread_data(target, _tls_size(target))
        self.stacks = _aligned(target, subtract(sorted(live), sorted(self.thread_data)))
        self.registers = [Register(thread.sp, value) for thread in target.threads for value in thread.registers]

    def _add(self, target: Target, name: str, ranges: Sequence[tuple[int, int]]) -> None:
        if name not in self.names:
            self.names.append(name)
        number = self.names.index(name)
        self.ranges.extend(OwnedRange(number, start, end) for start, end in _aligned(target, ranges))


def _linked(target: Target, loaded: LoadedObject, heaps: Ranges) -> Ranges:
    """Words of static data that look like addresses in ``heaps`` and are what the linker wrote: no block was there yet.
    Flags of static types, code and text do, where the program is linked at a fixed address and its heap near it."""
    found = (_native.find_initial(target.space, start, data, heaps) for start, data in loaded.initial_data())
    return [(address, address + target.machine.word) for addresses in found for address in addresses]


def _tls_size(target: Target) -> int:
    """Static thread-local data of all loaded objects, each rounded up."""
    parts = [part for loaded in target.objects for part in loaded.segments if part.type == PT_TLS]
    return min(sum(part.memory_size + part.align for part in parts), MAX_TLS)


def _thread_data(target: Target, size: int) -> Ranges:
    found = []
    for thread in target.threads:
        storage, pointer = target.machine.storage, thread.thread_pointer
        mapping = target.mappings.find(pointer)
        if mapping is not None and mapping.anonymous:
            parts = joined(sorted([storage.data(pointer, size), storage.descriptor(pointer, DESCRIPTOR)]))
            found += [(max(mapping.start, start), min(mapping.end, end)) for start, end in parts]
    return _aligned(target, found)


def _aligned(target: Target, ranges: Iterable[tuple[int, int]]) -> Ranges:
    """From the first whole word of each on."""
    return [(target.machine.word_up(start), end) for start, end in ranges]
