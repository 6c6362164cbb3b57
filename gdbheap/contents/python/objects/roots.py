"""Find the memory outside the heaps that points into them: static data of the loaded objects, and data of threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gdbheap.graph.roots import MAX_TLS, aligned, given_data, linked, thread_data, tls_size
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import OwnedRange, Ranges, joined, subtract, within
from gdbheap.targets.target import Target

INTERPRETER = "the interpreter"
THREADS = "threads"
# The names of two further roots of the graph, which belong to the threads.
ON_STACKS = STACKS, REGISTERS = "stacks", "registers"


class Roots:
    """The memory where references start: static data, and the stacks, registers and data of threads.

    ``names``: the owners of roots, the interpreter first.
    ``ranges``: the memory of each owner, by the index of its name.
    ``last``: the index of the threads, whose stacks have many stale pointers.
    ``registers``: the words in the threads' registers. While a function runs, a register may be the only reference to a
    block.
    ``thread_data``: the memory that certainly belongs to the threads.
    ``stacks``: the other parts of the threads' used stacks.

    Arguments:
    ``live``: the parts of threads' stacks that may be in use.
    ``loose``: stacks of coroutines and signal handlers.
    ``heaps``: the ranges of blocks and of the allocators' own records. They are left out of static data.
    """

    def __init__(
        self, target: Target, interpreter: LoadedObject, live: Ranges, loose: Ranges, heaps: Ranges | None = None
    ) -> None:
        given = given_data(target, heaps or [])
        self._numbers = {INTERPRETER: 0}
        self.ranges: list[OwnedRange] = []
        for loaded in [interpreter] + [other for other in target.objects if other is not interpreter]:
            name = INTERPRETER if loaded is interpreter else loaded.path.rsplit("/", 1)[-1]
            holes = sorted([*within(given, loaded.base, loaded.end), *linked(target, loaded)])
            self._add(target, name, subtract(loaded.writable_ranges(), holes))
        for file, ranges in target.unseen_data():
            self._add(target, file.name, ranges)
        live = joined(sorted(live + loose))
        self._add(target, THREADS, live)
        self._add(target, THREADS, thread_data(target, MAX_TLS))
        self.names = list(self._numbers)
        self.last = self._numbers[THREADS]
        self.thread_data = thread_data(target, tls_size(target))
        self.stacks = aligned(target, subtract(sorted(live), sorted(self.thread_data)))
        self.registers = [value for thread in target.threads for value in thread.registers]

    def add_names(self, names: Iterable[str]) -> None:
        """Add the names of roots outside of the target's memory."""
        self.names += [name for name in names if name not in self.names]

    def _add(self, target: Target, name: str, ranges: Sequence[tuple[int, int]]) -> None:
        number = self._numbers.setdefault(name, len(self._numbers))
        self.ranges.extend(OwnedRange(number, start, end) for start, end in aligned(target, ranges))
