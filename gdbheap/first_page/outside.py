"""Find the holders of resident memory that no allocator handed out.

This memory is static data, stacks, thread-local data, mapped files, shared memory and other mappings.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field
from os.path import basename

from gdbheap.allocators.library_memory import held_at
from gdbheap.allocators.line_ids import BREAK_OF_OTHERS, LineId
from gdbheap.allocators.runtimes import ALLOCATOR, MMAPPED
from gdbheap.answers.accounting.partition import CODE as CODE_OF_FILES
from gdbheap.answers.accounting.partition import DATA, ENDED_STACKS, READ_ONLY, REST, SHARED_FILES, STACKS
from gdbheap.answers.accounting.partition import SHARED as SHARED_LINE
from gdbheap.answers.accounting.pointing_variables import variable_of
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import MIN_FINDING_BYTES, Evidence
from gdbheap.findings.holder.rule import (
    BREAK,
    CODE,
    ENDED,
    FILE,
    LEFT,
    LIBRARY_MEMORY,
    MAPPED,
    SHARED,
    STACK,
    STATIC,
    STORAGE,
    UNJOINED,
    WRITTEN,
    MainHolder,
)  # fmt: skip
from gdbheap.graph.roots import program_storage
from gdbheap.heap import Heap
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.functions import readable
from gdbheap.targets.ranges import Ranges, intersect, joined, subtract, within
from gdbheap.targets.stack_mappings import Stack, live_parts
from gdbheap.targets.start_environment import path_as_started
from gdbheap.targets.target import AT_ENTRY, Thread

__all__ = ["IN_USE", "outside_holders", "unowned_holders"]

# Code mapped from files is normal: it has a row only if it has at least this percentage of RSS.
MIN_PERCENT_OF_CODE = 50
# The most large variables of a file that get rows.
MAX_VARIABLES = 5_000
# Memory that only this process has and uses; the verdict counts it as in use.
IN_USE = (STATIC, STACK, STORAGE, WRITTEN, BREAK)
# Mapped memory that objects in the heap may own.
MAPPABLE = (FILE, MAPPED, SHARED, WRITTEN)
OF_STORAGE = (STACKS, BREAK_OF_OTHERS, REST)
IN_STACKS = "deep recursion or large local variables"
BELOW = (" below its stack pointer", " below their stack pointers")
RETURNED = "left from deep calls that have returned"
NUMBERED = re.compile(r"\.\d+$")
SHARED_PAGES = "pages of {} (shared mapping)"
BROKEN = "memory from brk() that malloc does not use"
OWN = "memory that the program or a library mapped itself"


@dataclass
class _Place:
    """A holder of memory outside the allocators, and the ranges of its memory.

    ``written``: the holder's resident bytes if they are only a part of the ranges, such as the written pages of a file.
    None if all resident bytes of the ranges count."""

    name: str
    kind: str
    ranges: Ranges = field(default_factory=list)
    what: str | None = None
    written: int | None = None


def outside_holders(evidence: Evidence) -> list[MainHolder]:
    """Return the holders of memory outside the heap that have enough bytes for a row of their own, the largest first.

    If residency is unknown, only holders of static data are returned, with all bytes of the data.
    """
    return _holders(evidence, [])


def unowned_holders(evidence: Evidence, rows: Sequence[MainHolder]) -> Sequence[MainHolder]:
    """Return ``rows`` without mapped memory that objects in the heap own. The rows of these objects include that
    memory.
    """
    heap = evidence.heap
    is_mappable = any(row.kind in MAPPABLE for row in rows)
    owned = joined(sorted((one.address, one.end) for one in heap.mapped)) if is_mappable else []
    return _holders(evidence, owned) if owned else rows


def _holders(evidence: Evidence, owned: Ranges) -> list[MainHolder]:
    if evidence.heap.target.refusal is not None:
        return []
    is_known = evidence.heap.target.pages is not None
    places = [place for place in _Places(evidence, owned).find() if is_known or place.kind == STATIC]
    rows = [_row(evidence, place) for place in places]
    return sorted((row for row in rows if _is_much(evidence, row)), key=lambda row: (-row.bytes, row.path))


def _is_much(evidence: Evidence, row: MainHolder) -> bool:
    is_code = row.kind == CODE
    return evidence.worth(row.bytes) and not (is_code and 100 * row.bytes < MIN_PERCENT_OF_CODE * evidence.rss)


def _row(evidence: Evidence, place: _Place) -> MainHolder:
    size = _size(evidence, place.ranges) if place.written is None else place.written
    if place.kind in (MAPPED, LIBRARY_MEMORY):
        size -= sum(evidence.lazily_freed(*pair) for pair in place.ranges)
    rss = evidence.heap.target.rss.bytes
    share = round(min(size / rss, 1), 4) if rss else None
    address = max(place.ranges, key=lambda pair: _size(evidence, [pair]), default=(0, 0))[0] or None
    resident = None if evidence.heap.target.pages is None else size
    return MainHolder(size, resident, share, place.name, place.what, None, place.kind, outside=address)


def _size(evidence: Evidence, ranges: Ranges) -> int:
    """Return the resident bytes in the ranges, or all bytes if residency is unknown."""
    return evidence.known_bytes_of(ranges)


class _Places:
    """Lists the holders of memory outside malloc: files, static data, stacks, shared and other mappings."""

    def __init__(self, evidence: Evidence, owned: Ranges) -> None:
        self._evidence, self._heap, self._target = evidence, evidence.heap, evidence.heap.target
        self._storage = program_storage(self._target)
        self._pieces = {owner: subtract(found, owned) for owner, found in evidence.other_ranges.items()}

    def find(self) -> Iterator[_Place]:
        yield from self._of_files()
        yield from self._of_stacks()
        yield from self._of_shared()
        yield _Place(BROKEN, BREAK, self._without_storage(BREAK_OF_OTHERS))
        yield from self._of_rest()
        yield from self._of_ended()

    def _of(self, owner: LineId) -> Ranges:
        return self._pieces.get(owner, [])

    def _without_storage(self, owner: LineId) -> Ranges:
        return subtract(self._of(owner), self._storage)

    def _is_large(self, ranges: Ranges) -> bool:
        return self._evidence.worth(_size(self._evidence, ranges))

    def _of_files(self) -> Iterator[_Place]:
        data: defaultdict[int, Ranges] = defaultdict(list)
        files: defaultdict[str, Ranges] = defaultdict(list)
        code: Ranges = []
        numbers = {loaded.base: number for number, loaded in enumerate(self._target.objects)}
        for owner in (DATA, READ_ONLY, CODE_OF_FILES):
            for start, end in self._of(owner):
                loaded, mapping = self._target.object_of(start), self._target.mappings.find(start)
                if loaded is not None and owner == DATA:
                    data[numbers[loaded.base]].append((start, end))
                elif loaded is not None or mapping is None:
                    code.append((start, end))
                else:
                    files[mapping.name].append((start, end))
        yield _Place("code and constants of programs and libraries", CODE, code)
        for number, ranges in data.items():
            yield from self._of_data(self._target.objects[number], ranges) if self._is_large(ranges) else ()
        for name, ranges in files.items():
            yield from self._of_file(name, ranges) if self._is_large(ranges) else ()

    def _of_data(self, loaded: LoadedObject, ranges: Ranges) -> Iterator[_Place]:
        """Yield the large variables in an object's static data by their symbols, then all remaining static data."""
        name = basename(path_as_started(self._target, loaded))
        named: Ranges = []
        for symbol, parts in _variables(loaded, ranges):
            if self._is_large(parts):
                named += parts
                # gcc appends a number to static variables of functions.
                symbol = NUMBERED.sub("", symbol)
                yield _Place(f"static variable '{readable(symbol)}' in {name}", STATIC, parts)
        yield _Place(f"static data of {name}", STATIC, subtract(ranges, joined(sorted(named))))

    def _of_file(self, name: str, ranges: Ranges) -> Iterator[_Place]:
        """Yield two holders for a private file mapping: its written pages, and its pages that were only read."""
        written = self._written(ranges)
        if written is None:
            yield _Place(f"pages of {name} (private mapping)", FILE, ranges)
            return
        read = max(0, self._evidence.resident_of(ranges) - written)
        yield _Place(f"written pages of {name} (private mapping)", WRITTEN, ranges, written=written)
        yield _Place(f"pages of {name} (mapped, only read)", FILE, ranges, written=read)

    def _written(self, ranges: Ranges) -> int | None:
        rows = self._target.written
        if rows is None:
            return None
        sizes = (size for start, end, size in rows if within(ranges, start, end))
        return min(sum(sizes), self._evidence.resident_of(ranges))

    def _of_stacks(self) -> Iterator[_Place]:
        """Yield the used parts of the threads' stacks, and the parts below their stack pointers.

        Locked pages below a stack pointer count as used, because they may be resident without any call.
        """
        ranges, stacks = self._without_storage(STACKS), self._heap.stacks
        used: list[tuple[Stack, Ranges]] = []
        left: list[tuple[Stack, Ranges]] = []
        for stack, (low, _end) in zip(stacks, live_parts(self._target, stacks)):
            parts = intersect(within(ranges, stack.start, stack.end), [(stack.start, stack.end)])
            below = subtract(intersect(parts, [(stack.start, low)]), self._target.locked)
            used.append((stack, subtract(parts, below)))
            left.append((stack, below))
        yield from self._of_threads(used, STACK, ("", ""), IN_STACKS)
        yield from self._of_threads(left, LEFT, BELOW, RETURNED)
        yield from self._of_storage()

    def _of_threads(
        self, rows: list[tuple[Stack, Ranges]], kind: str, where: tuple[str, str], what: str
    ) -> Iterator[_Place]:
        """Yield the first thread's stack, the largest other stack, and the remaining stacks as one holder.

        The largest other stack is separate only if it has at least half of the bytes of all stacks but the first
        thread's. ``where``: the endings of the names for one stack and for several, such as " below its stack pointer".
        """
        main = self._target.main_stack
        sizes: list[tuple[int, Stack, Ranges]] = []
        for stack, parts in rows:
            if main is not None and stack.start in main:
                yield _Place(f"{self._named(stack)}{where[0]}", kind, parts, what)
            else:
                sizes.append((self._evidence.resident_of(parts), stack, parts))
        sizes.sort(key=lambda row: -row[0])
        if sizes and 2 * sizes[0][0] >= sum(size for size, _stack, _parts in sizes):
            _size, stack, parts = sizes.pop(0)
            yield _Place(f"{self._named(stack)}{where[0]}", kind, parts, what)
        others = sorted(pair for _size, _stack, parts in sizes for pair in parts)
        yield _Place(f"stacks of {len(sizes):,} threads{where[1]}", kind, others, what)

    def _named(self, stack: Stack) -> str:
        thread = next((one for one in self._target.threads if one.tid == stack.tid), None)
        is_main = stack.tid == self._target.pid
        return f"stack of thread {_title(stack.tid, thread)}{', the main thread' if is_main else ''}"

    def _of_storage(self) -> Iterator[_Place]:
        parts = [intersect(self._of(owner), self._storage) for owner in OF_STORAGE]
        ranges = sorted(pair for found in parts for pair in found)
        sizes = [self._evidence.resident_of([pair]) for pair in ranges]
        # Each thread uses at least the last page of its data, where the C library's own data begins.
        count = sum(2 * size >= max(sizes) for size in sizes)
        name = f"thread-local data of {count:,} thread{'s' * (count != 1)}"
        largest = _largest_variable(self._heap)
        yield _Place(name, STORAGE, ranges, None if largest is None else f"variable {largest}")

    def _of_ended(self) -> Iterator[_Place]:
        """Yield the stacks of ended threads that were never joined, then the stacks that the C library keeps for new
        threads."""
        stacks = [(stack.start, stack.end) for stack in self._heap.ended_stacks if stack.is_joinable]
        ranges = self._of(ENDED_STACKS)
        joinable = intersect(ranges, stacks)
        count = len(stacks)
        threads = "1 thread that ended and was" if count == 1 else f"{count:,} threads that ended and were"
        yield _Place(f"stacks of {threads} never joined", UNJOINED, joinable)
        yield _Place("stacks of ended threads, which the C library keeps", ENDED, subtract(ranges, joinable))

    def _of_shared(self) -> Iterator[_Place]:
        """Yield shared memory and shared mappings of files on a disk, grouped by name."""
        for line, kind, title in ((SHARED_LINE, SHARED, "shared memory {}"), (SHARED_FILES, FILE, SHARED_PAGES)):
            found: defaultdict[str, Ranges] = defaultdict(list)
            for start, end in self._of(line):
                mapping = self._target.mappings.find(start)
                if mapping is not None:
                    found[mapping.name].append((start, end))
            yield from (_Place(title.format(name), kind, ranges) for name, ranges in found.items())

    def _of_rest(self) -> Iterator[_Place]:
        """Yield one holder for each library that mapped much memory, and one holder for all remaining mappings."""
        held = self._heap.held
        found: defaultdict[str, Ranges] = defaultdict(list)
        for start, end in self._without_storage(REST):
            library = held_at(held, start)
            found["" if library is None else library.name].append((start, end))
        others = found.pop("", [])
        for name, ranges in found.items():
            if self._is_large(ranges):
                variable = variable_of(self._target, next(one for one in held if one.name == name), ranges)
                what = None if variable is None else f"reached from {variable}"
                yield _Place(f"memory that {name} mapped", LIBRARY_MEMORY, ranges, what)
            else:
                others += ranges
        yield _Place(_of_runtimes(self._heap) or OWN, MAPPED, sorted(others))


def _of_runtimes(heap: Heap) -> str:
    names = [one.kind.name for one in heap.runtimes if one.kind.memory not in (ALLOCATOR, MMAPPED)]
    return f"memory of {' or '.join(names)}, or other mappings" if names else ""


def _title(tid: int, thread: Thread | None) -> str:
    return f"{tid} ({thread.name})" if thread is not None and thread.name else str(tid)


def _variables(loaded: LoadedObject, ranges: Ranges) -> Iterator[tuple[str, Ranges]]:
    """Yield the variables of at least MIN_FINDING_BYTES that do not overlap an earlier or a larger one."""
    rows = loaded.symbols_in(loaded.base, loaded.end, MAX_VARIABLES, MIN_FINDING_BYTES)
    last = 0
    for start, size, name in sorted(rows, key=lambda row: (row[0], -row[1], row[2])):
        parts = intersect(within(ranges, start, start + size), [(start, start + size)])
        if start >= last and parts:
            last = start + size
            yield name, parts


def _largest_variable(heap: Heap) -> str | None:
    program = heap.target.object_of(heap.target.auxv.get(AT_ENTRY, 0))
    rows: Sequence[tuple[int, int, str]] = [] if program is None else program.thread_local()
    return max(((size, readable(name)) for _offset, size, name in rows), default=(0, None))[1]
