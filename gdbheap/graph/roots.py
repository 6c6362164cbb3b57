"""Find the roots outside the heaps: static data of the loaded objects by symbol, data of threads, and memory that a
program mapped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import accumulate, chain, islice
from os.path import basename

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.graph.nodes import Root
from gdbheap.host.headroom import room_for_copy
from gdbheap.host.kernel_pointers import KernelPointers
from gdbheap.machines.image import PF_W, PT_LOAD, PT_TLS
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.functions import readable
from gdbheap.targets.mappings import Mapping
from gdbheap.targets.ranges import Ranges, intersect, joined, subtract, within
from gdbheap.targets.stack_mappings import Stack
from gdbheap.targets.start_environment import path_as_started
from gdbheap.targets.target import AT_ENTRY, Target, Thread

__all__ = [
    "BY_LEFT_OVER",
    "BY_PADDING",
    "BY_STACKS",
    "BY_STATIC",
    "GLOBAL",
    "MEMORY",
    "THREAD",
    "DATA",
    "STACK",
    "BlockRoot",
    "Tables",
    "aligned",
    "block_roots",
    "file_root",
    "kernel_roots",
    "linked",
    "program_storage",
    "tables",
    "thread_data",
    "thread_variables",
    "tls_size",
]

# The phases in which roots are followed; see native/core/src/graph/tree.rs.
BY_STATIC, BY_STACKS = 0, 1
# The first phase of weak evidence (words in the padding of a block); interior pointers follow in later phases.
BY_PADDING = 2
# The phase of words that may be stale.
BY_LEFT_OVER = 5
# The kinds of roots.
GLOBAL, THREAD, MEMORY = "global", "thread", "memory"
STACK, REGISTERS, DATA = "stack", "registers", "data"
# On one side of the thread pointer lie at most MAX_TLS bytes of static thread-local data, on the other struct pthread.
MAX_TLS, DESCRIPTOR = 16 << 10, 4 << 10
# The most symbols that become roots, in all objects together.
#
# The number is lower if there is not enough memory for SYMBOL_BYTES bytes for each symbol.
MAX_SYMBOLS, SYMBOL_BYTES = 1 << 20, 1 << 10
# The most runs of words that may be addresses, in all objects together. A section that would exceed this number becomes
# one root.
MAX_RUNS = 1 << 18
# The most words that look like addresses and were written by the linker. Further words count as the program's.
MAX_LINKED = 1 << 18
PIECE = 4 << 20


@dataclass(frozen=True)
class BlockRoot(Root):
    """A root of a graph of blocks.

    ``kind``: GLOBAL, THREAD or MEMORY. ``owner``: for a global the path of its loaded object, for a thread its number
    and name. ``part``: for a global, its symbol in quotes or its section; for a thread, STACK, REGISTERS or DATA; for a
    mapping, its name. ``thread``: the thread whose memory or registers the root is, or None.
    """

    kind: str = MEMORY
    owner: str = ""
    part: str = ""
    thread: Thread | None = None


@dataclass(frozen=True)
class Tables:
    """The ranges in which vtables (``data``) and functions (``code``) may lie, for ``_native.draw_blocks``."""

    data: Ranges
    code: Ranges


def tables(target: Target) -> Tables:
    """Return the ranges of data and code of all loaded objects."""
    mappings = [mapping for loaded in target.objects for mapping in loaded.mappings]
    data = [(mapping.start, mapping.end) for mapping in mappings if not mapping.executable]
    code = [(mapping.start, mapping.end) for mapping in mappings if mapping.executable]
    return Tables(joined(sorted(data)), joined(sorted(code)))


def block_roots(
    target: Target,
    stacks: Sequence[tuple[Stack, Ranges]],
    loose: Ranges,
    others: Ranges,
    taken: tuple[Ranges, Ranges],
    kept: Ranges,
) -> list[Root]:
    """Return the roots of a graph of blocks.

    ``stacks``: the stacks, each with its used ranges. ``loose``: stacks without a thread. ``others``: memory that is
    not walked. ``taken``: the ranges of blocks, and the allocators' own records. ``kept``: data of ended threads that
    the C library still uses.
    """
    heaps, books = taken
    bounds = (min(heaps)[0], max(end for _start, end in heaps)) if heaps else (0, 0)
    own = sorted(thread_data(target, tls_size(target)))
    given = given_data(target, sorted(heaps + books))
    found: list[Root] = []
    budget = _Budget()
    for loaded in target.objects:
        roots = _globals(target, loaded, bounds, within(given, loaded.base, loaded.end), budget)
        path = path_as_started(target, loaded)
        found += roots if path == loaded.path else (_renamed(root, path) for root in roots)
    found += _unseen(target, bounds, budget)
    found += (_data_root(thread, own) for thread in target.threads)
    found += (_other(target, start, end) for start, end in subtract(others, own))
    if kept:
        found.append(BlockRoot("thread-local data of ended threads", BY_STATIC, [], kept, THREAD, "", DATA))
    threads = {thread.tid: thread for thread in target.threads}
    pointers, disjoint = sorted(thread.sp for thread in target.threads), joined(own)
    for stack, live in stacks:
        rest = subtract(live, within(disjoint, stack.start, stack.end))
        parts = aligned(target, _frames_first(pointers, stack, rest))
        whose = threads.get(stack.tid)
        name = str(stack.tid) if whose is None else _thread_name(whose)
        found.append(BlockRoot(f"stack of thread {name}", BY_STACKS, [], parts, THREAD, name, STACK, whose))
    if loose:
        found.append(BlockRoot("other stacks", BY_STACKS, [], aligned(target, loose), THREAD, "", STACK))
    for thread in target.threads:
        name, values = _thread_name(thread), list(thread.registers)
        root = BlockRoot(f"registers of thread {name}", BY_STACKS, values, [], THREAD, name, REGISTERS, thread)
        found.append(root)
    return found


def given_data(target: Target, heaps: Ranges) -> Ranges:
    """Return the parts of the loaded objects' static data in which blocks lie.

    musl's dynamic linker gives musl's malloc the unused ends of that data. ``heaps``: the ranges in which blocks lie.
    """
    data = joined(sorted(pair for loaded in target.objects for pair in loaded.writable_ranges()))
    return intersect(joined(sorted(heaps)), data)


def _frames_first(pointers: Sequence[int], stack: Stack, live: Ranges) -> Ranges:
    """Return the used part of a stack above its stack pointer, then the part below it, where words are mostly stale.

    ``pointers``: the stack pointers of all threads, ascending. The highest pointer into this stack is used.
    """
    place = bisect_left(pointers, stack.end)
    high = pointers[place - 1] if place else 0
    below = [(start, min(end, high)) for start, end in live if stack.start <= high and start < high]
    return [*subtract(live, below), *below]


def _thread_name(thread: Thread) -> str:
    return f"{thread.tid} ({thread.name})" if thread.name else str(thread.tid)


def _data_root(thread: Thread, own: Ranges) -> BlockRoot:
    place = bisect_left(own, (thread.thread_pointer, 0))
    near = [pair for pair in own[max(place - 1, 0) : place + 1] if pair[0] <= thread.thread_pointer <= pair[1]]
    name = _thread_name(thread)
    return BlockRoot(f"thread-local data of thread {name}", BY_STATIC, [], near, THREAD, name, DATA, thread)


def thread_variables(target: Target) -> list[tuple[int, int, str]]:
    """Return (bytes from the thread pointer, size in bytes, name) of the program's own thread-local variables.

    The program is the first object for which the linker reserves thread-local memory (elf/dl-tls.c,
    _dl_determine_tlsoffset).
    """
    program = target.object_of(target.auxv.get(AT_ENTRY, 0))
    part = next((part for part in program.segments if part.type == PT_TLS), None) if program is not None else None
    if program is None or part is None or not target.machine.storage.data_below:
        return []
    align = max(part.align, 1)
    first = -part.address % align
    start = -(_up(part.memory_size - first, align) + first)
    return [(start + offset, size, readable(name)) for offset, size, name in program.thread_local()]


def program_storage(target: Target) -> Ranges:
    """Return the ranges of the program's thread-local data, one for each thread, ascending and disjoint."""
    program = target.object_of(target.auxv.get(AT_ENTRY, 0))
    parts = [part for part in program.segments if part.type == PT_TLS] if program is not None else []
    size = sum(_up(part.memory_size, max(part.align, 1)) for part in parts)
    found = sorted(target.machine.storage.data(thread.thread_pointer, size) for thread in target.threads)
    ends = accumulate((end for _start, end in found), max, initial=0)
    return [(max(start, last), end) for (start, end), last in zip(found, ends) if max(start, last) < end]


def _up(size: int, align: int) -> int:
    return -(-size // align) * align


def _other(target: Target, start: int, end: int) -> BlockRoot:
    mapping = target.mappings.find(start)
    name = (mapping.name if mapping is not None else "") or "anonymous memory"
    # The kernel's name for shared memory without a file.
    name = "shared memory" if name.startswith("/dev/zero") else name
    return BlockRoot(f"{name} at {start:#x}", BY_STATIC, [], aligned(target, [(start, end)]), MEMORY, "", name)


def file_root(mapping: Mapping, ranges: Ranges) -> BlockRoot:
    """Return the root for ``ranges`` of the mapped file behind ``mapping``."""
    return BlockRoot(f"{mapping.name} at {mapping.start:#x}", BY_STATIC, [], ranges, MEMORY, "", mapping.name)


def kernel_roots(known: KernelPointers) -> list[Root]:
    """Return the roots for addresses that the kernel keeps for the program (epoll and timers)."""
    kinds = [("epoll", known.epoll), ("timers", known.timers)]
    return [
        BlockRoot(f"the kernel ({part})", BY_STATIC, pointers, [], MEMORY, "", part)
        for part, pointers in kinds
        if pointers
    ]


@dataclass
class _Budget:
    """The number of roots that may still be made, which limits the memory for the graph.

    ``symbols``: the roots of symbols. ``runs``: the roots of runs of words without a symbol."""

    symbols: int = field(default_factory=lambda: min(MAX_SYMBOLS, room_for_copy() // SYMBOL_BYTES))
    runs: int = MAX_RUNS


def _globals(
    target: Target, loaded: LoadedObject, bounds: tuple[int, int], given: Ranges, budget: _Budget
) -> Iterator[BlockRoot]:
    """Yield the roots in a loaded object's static data: one for each symbol.

    Data without a symbol gives a root for each run of words that may be addresses of blocks. Such a root is named by
    its section and the offset in it. ``given``: the parts of the data in which blocks lie, which are left out."""
    ranges = subtract(_static_data(target, loaded), given)
    if not ranges:
        return
    low, high = ranges[0][0], ranges[-1][1]
    end = low
    rows = loaded.symbols_in(low, high, budget.symbols)
    budget.symbols -= len(rows)
    named: list[tuple[int, int]] = []
    for start, size, name in sorted(rows, key=lambda row: (row[0], -row[1], _plainness(row[2]))):
        if start < end:
            continue
        end = min(start + size, high)
        parts = aligned(target, intersect([(start, end)], within(ranges, start, end)))
        if parts:
            named.append((start, end))
            yield _global(loaded.path, _quoted(name), parts)
    rest, taken, end = subtract(ranges, named), [], low
    for name, start, last in sorted(loaded.sections(), key=lambda section: section[1:]):
        first, end = max(start, end), max(last, end)
        parts = aligned(target, intersect(within(rest, first, last), [(first, last)])) if first < last else []
        if parts:
            taken.append((first, last))
            yield from _unnamed(target, loaded.path, (name, start), parts, bounds, budget)
    rest = subtract(rest, taken)
    if rest:
        yield from _unnamed(target, loaded.path, ("data", low), aligned(target, rest), bounds, budget)


def variable_at(target: Target, address: int) -> tuple[str, int, int] | None:
    """Return (name with its library, start, size in bytes) of the static variable that contains the given address.

    None if no symbol covers the address.
    """
    loaded = target.object_of(address)
    if loaded is None:
        return None
    rows = loaded.symbols_around(address)
    start, size, name = min(rows, key=lambda row: _plainness(row[2]), default=(0, 0, ""))
    return (f"{_quoted(name)} in {basename(path_as_started(target, loaded))}", start, size) if size else None


def _quoted(symbol: str) -> str:
    """Return a symbol in quotes. Without quotes, symbols such as ``names`` and ``last`` would read as words of the
    sentence.
    """
    return f"'{readable(symbol)}'"


def _unseen(target: Target, bounds: tuple[int, int], budget: _Budget) -> Iterator[BlockRoot]:
    """Yield the roots in the data of files whose headers cannot be read. Their names state the distance from the file's
    base address.
    """
    for file, ranges in target.unseen_data():
        yield from _unnamed(target, file.path, ("data", file.base), aligned(target, ranges), bounds, budget)


def _unnamed(
    target: Target, path: str, section: tuple[str, int], parts: Ranges, bounds: tuple[int, int], budget: _Budget
) -> Iterator[BlockRoot]:
    name, start = section
    runs = _native.find_pointer_runs(target.space, parts, *bounds, budget.runs)
    if len(runs) == budget.runs:
        yield _global(path, name, parts)
        return
    budget.runs -= len(runs)
    for run in runs:
        yield _global(path, f"{name}{run[0] - start:+#x}", [run])


def _global(path: str, part: str, parts: Ranges) -> BlockRoot:
    name = f"{part} in {path.rsplit('/', 1)[-1]}"
    return BlockRoot(name, BY_STATIC, [], parts, GLOBAL, path, part)


def _renamed(root: BlockRoot, path: str) -> BlockRoot:
    """Return the root of a global, named after the link that started the program instead of the program's file."""
    return replace(root, name=f"{root.part} in {basename(path)}", owner=path)


def _plainness(name: str) -> tuple[int, int, str]:
    """Return a sort key that puts the plainest of several names for an address first: ``environ`` before
    ``__environ``."""
    return len(name) - len(name.lstrip("_")), len(name), name


def _static_data(target: Target, loaded: LoadedObject) -> Ranges:
    """Return an object's writable data, and its data that becomes read-only after relocation (RELRO).

    If the object is linked at a fixed address, words that the linker wrote are left out.
    """
    loads = [part for part in loaded.segments if part.type == PT_LOAD and part.flags & PF_W]
    placed = ((loaded.bias + load.address, loaded.bias + load.address + load.memory_size) for load in loads)
    mapped = joined(sorted([(mapping.start, mapping.end) for mapping in loaded.mappings] + loaded.bss))
    relocated = intersect(joined(sorted((max(0, start), max(0, end)) for start, end in placed)), mapped)
    ranges = joined(sorted(loaded.writable_ranges() + relocated))
    return ranges if loaded.bias else subtract(ranges, linked(target, loaded))


def linked(target: Target, loaded: LoadedObject) -> Ranges:
    """Return the words of static data that the linker wrote and that look like addresses in anonymous memory.

    The linker wrote these words before any block existed, so they are not references. In a program linked at a fixed
    address near its heap, flags of static types, code and text look like such addresses.
    """
    heaps = target.mappings.writable_anonymous
    # Each part of the data has one extra word, because data from the file may begin in the middle of a word.
    pieces = (
        (start + at, data[at : at + PIECE + target.machine.word])
        for start, data in loaded.initial_data()
        for at in range(0, len(data), PIECE)
    )
    found = (_native.find_initial(target.space, start, data, heaps) for start, data in pieces)
    addresses = islice(chain.from_iterable(found), MAX_LINKED)
    return sorted((address, address + target.machine.word) for address in addresses)


def tls_size(target: Target) -> int:
    """Return how many bytes of static thread-local data all loaded objects together have, rounded up.

    The result is at most MAX_TLS, and exactly MAX_TLS if some objects cannot be read.
    """
    if target.unseen:
        return MAX_TLS
    parts = [part for loaded in target.objects for part in loaded.segments if part.type == PT_TLS]
    return min(sum(part.memory_size + part.align for part in parts), MAX_TLS)


def thread_data(target: Target, size: int) -> Ranges:
    """Return the ranges of each thread's static thread-local data, ``size`` bytes, and of its struct pthread."""
    found = []
    for thread in target.threads:
        storage, pointer = target.machine.storage, thread.thread_pointer
        mapping = target.mappings.find(pointer)
        if mapping is not None and mapping.anonymous:
            parts = joined(sorted([storage.data(pointer, size), storage.descriptor(pointer, DESCRIPTOR)]))
            found += [(max(mapping.start, start), min(mapping.end, end)) for start, end in parts]
    return aligned(target, found)


def aligned(target: Target, ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ranges with their starts moved up to the next whole word."""
    return [(target.machine.word_up(start), end) for start, end in ranges]
