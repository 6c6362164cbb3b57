"""Assign each byte and each page of the address space to an owner: a line of the ledger without child lines.

Each byte belongs to one owner, so a line never has more resident bytes than bytes in total. In addition, each whole
page belongs to one of the owners that have bytes in it. If several owners have bytes in a page, the last of them in
this order gets the page: free memory, reserves, tops, an allocator's own overhead, other memory, shared memory, stacks,
files, blocks in use. So the whole pages of a line for free memory are completely free.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Union

from gdbheap import _native
from gdbheap.allocators.allocator import Allocator, LedgerLine, State
from gdbheap.allocators.line_ids import BREAK_OF_OTHERS, UNEXPLAINED, LineId, line_below, lines_below
from gdbheap.allocators.recognised import OtherAllocator
from gdbheap.allocators.runtimes import Runtime
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError
from gdbheap.heap import Heap
from gdbheap.host.procfs import BREAK
from gdbheap.targets.mappings import Mapping
from gdbheap.targets.ranges import Ranges, joined, subtract, within

# If two owners have bytes in a page, the one that comes later here gets the page. Blocks in use and unknown memory come
# after these.
EMPTY = (State.FREE, State.RESERVED, State.TOP, State.OVERHEAD)
REST = LineId("other.rest")
"""Memory whose owner is unknown."""
STACKS, ENDED_STACKS = LineId("stacks"), LineId("ended-stacks")
"""Stacks of threads, and stacks of ended threads, which the C library keeps for new threads."""
SHARED, FILES, OTHER = LineId("shared"), LineId("file"), LineId("other")
"""Shared memory, all files, and all other memory. FILES and OTHER are split into the lines that follow."""
CODE, DATA, READ_ONLY, SHARED_FILES = lines_below(FILES, "text", "data", "readonly", "shared")
"""The lines below FILES. SHARED_FILES are shared mappings of files on a disk: writes reach the file."""
OF_KERNEL, OF_ALLOCATOR, OF_RUNTIME = lines_below(OTHER, "kernel", "allocator", "runtime")
OTHERS = (
    REST,
    BREAK_OF_OTHERS,
    OF_KERNEL,
    OF_ALLOCATOR,
    OF_RUNTIME,
    SHARED,
    STACKS,
    ENDED_STACKS,
    READ_ONLY,
    SHARED_FILES,
    DATA,
    CODE,
)
MISSING = LineId("missing")
"""The bytes that are absent from a truncated core. Their owner is unknown."""


@dataclass(frozen=True)
class Sum:
    """Sums of one owner, in bytes.

    ``virtual``: all its bytes. Parts of ``virtual``: ``resident``, ``swapped``, ``zero`` (mapped to the kernel's zero
    page, not resident) and ``huge`` (resident, mapped by huge pages). ``pages``: the bytes of the whole pages that
    belong to the owner. Parts of ``pages``: ``whole`` (resident) and ``whole_huge`` (mapped by huge pages).
    """

    virtual: int = 0
    resident: int = 0
    swapped: int = 0
    zero: int = 0
    huge: int = 0
    pages: int = 0
    whole: int = 0
    whole_huge: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(*(one + two for one, two in zip(vars(self).values(), vars(other).values())))


Sums = dict[LineId, Sum]
"""The sums of each owner. An owner is the id of a ledger line that is not split into further lines."""
Owner = Union[LineId, Allocator]


def total(sums: Sums, line: LineId | None = None) -> Sum:
    """Return the sum over the owners below ``line``, or over all owners if ``line`` is None."""
    found = Sum()
    for owner, values in sums.items():
        if line is None or _is_below(owner, line):
            found += values
    return found


def _is_below(owner: LineId, line: LineId) -> bool:
    return owner == line or owner.startswith(line + ".")


def other_allocator(heap: Heap) -> OtherAllocator | None:
    """Return the allocator that is present next to glibc's; None if there is none, or if no memory can be read."""
    return heap.other_allocator if heap.target.refusal is None else None


def main_runtime(heap: Heap) -> Runtime | None:
    """Return the runtime that certainly owns some of the target's anonymous mappings; None if there is none."""
    if heap.target.refusal is not None:
        return None
    return next((found for found in heap.runtimes if any(map(found.owns, heap.target.mappings))), None)


def partition(heap: Heap, cuts: Sequence[int] = ()) -> list[Sums]:
    """Return the bytes of each owner (virtual, resident, swapped and others), for each part of the address space.

    ``cuts``, ascending and page-aligned, divide the address space into parts: below the first cut, from there to the
    second, and so on. If memory cannot be walked (no malloc, no memory access), it counts as files, stacks and other.
    """
    layout = _Layout(heap)
    if heap.target.refusal is None:
        layout.build()
    else:
        heap.note("mappings-alone", error=str(heap.target.refusal))
        layout.add_rest()
    return _Sweep(heap, layout, cuts).run()


def huge_ranges(heap: Heap, parts: Sequence[LineId]) -> Ranges:
    """Return the pages of ordinary size in huge pages that belong to the ledger lines ``parts``.

    A page counts only if it belongs as a whole to one of these lines, or to a line below it."""
    layout = _Layout(heap)
    layout.build()
    sweep = _Sweep(heap, layout, (), parts)
    sweep.run()
    return sweep.kept


def other_pieces(heap: Heap) -> list[tuple[int, int, LineId]]:
    """Return (start, end, owner) of the memory outside all allocators' blocks, ascending.

    The list is empty if no memory can be read.
    """
    if heap.target.refusal is not None:
        return []
    layout = _Layout(heap)
    layout.build()
    return [(start, end, owner) for start, end, owner in layout.pieces if isinstance(owner, str)]


class _Sweep:
    """Sums the bytes and pages of a layout's ranges by owner, in one native pass."""

    def __init__(self, heap: Heap, layout: _Layout, cuts: Sequence[int], parts: Sequence[LineId] = ()) -> None:
        self._heap, self._layout = heap, layout
        self._owners = list(_ranked(ledger_lines(layout.allocators)))
        self._ranks = {owner: rank for rank, owner in enumerate(self._owners)}
        kept = [rank for owner, rank in self._ranks.items() if any(_is_below(owner, part) for part in parts)]
        self._sweep = _native.Sweep(heap.target.machine, heap.target.pages, len(self._owners), cuts, kept)
        self._sweep.set_lost(heap.target.missing, self._ranks[MISSING])

    @property
    def kept(self) -> Ranges:
        """The pages of ordinary size in huge pages that belong to the ledger lines ``parts``.

        A page counts only if it belongs as a whole to one of these lines, or to a line below it."""
        return self._sweep.huge_ranges()

    def run(self) -> list[Sums]:
        at = 0
        for start, end, owner in self._layout.pieces:
            if start < at:
                whose = owner if isinstance(owner, str) else owner.title
                self._heap.note("two-owners", address=start, owner=whose)
                start = at
            if start < end:
                at = self._add(start, end, owner)
        return [{self._owners[row.owner]: _sum_of(row) for row in cell} for cell in self._sweep.finish()]

    def _add(self, start: int, end: int, owner: Owner) -> int:
        if isinstance(owner, str):
            self._sweep.add(start, end, self._rank(owner))
            return end
        if (start, end) in self._layout.walked:
            return owner.sweep(self._sweep, start, self._rank)
        self._sweep.add(start, end, self._rank(UNEXPLAINED))
        return end

    def _rank(self, owner: LineId) -> int:
        """Return the rank of an owner. If several owners have bytes in a page, the one with the highest rank gets the
        page. Raises KeyError if no allocator declares a line for the owner."""
        return self._ranks[owner]


def _sum_of(row: _native.OwnerSum) -> Sum:
    return Sum(row.bytes, row.resident, row.swapped, row.zero, row.huge, row.pages, row.whole, row.whole_huge)


def ledger_lines(allocators: Iterable[Allocator]) -> list[LedgerLine]:
    """Return those ledger lines of the allocators that have bytes of their own: the lines without child lines."""
    return [line for allocator in allocators for line in allocator.all_lines() if line.state is not None]


def line_states(allocators: Iterable[Allocator]) -> dict[LineId, str]:
    """Return {id of the line: state} for the allocators' ledger lines.

    The result has the lines that own bytes, and the subtotals above them, because all lines of a subtotal have the same
    state. The line with an allocator's total is left out. The state is "used", "free" (also for reserved address
    space), "top" or "overhead".
    """
    found: dict[LineId, str] = {}
    for allocator in allocators:
        for line in ledger_lines([allocator]):
            state = State.FREE if line.state in (State.FREE, State.RESERVED) else line.state
            # The ids of a line's parents are prefixes of its own id. The allocator's own line is left out.
            parts = line.id.removeprefix(f"{allocator.name}.").split(".")
            names = [line_below(allocator.name, ".".join(parts[: place + 1])) for place in range(len(parts))]
            found.update((name, state.value) for name in names if state is not None)
    return found


def _ranked(lines: Sequence[LedgerLine]) -> Iterator[LineId]:
    for state in EMPTY:
        yield from (line.id for line in lines if line.state is state)
    yield from OTHERS
    yield from (line.id for line in lines if line.state is State.USED)
    yield UNEXPLAINED
    yield MISSING


class _Layout:
    """The address space as ascending ranges (``pieces``), each with an owner.

    An owner is the id of a ledger line, or an allocator whose blocks belong to different lines. ``walked``: the
    allocators' ranges whose blocks must be walked. ``allocators``: the allocators that could be walked.
    """

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self.pieces: list[tuple[int, int, Owner]] = []
        self.walked: set[tuple[int, int]] = set()
        self.allocators: list[Allocator] = []

    def build(self) -> None:
        """Add the stacks and the allocators. The remaining memory of each mapping then gets an owner according to the
        mapping.
        """
        heap = self._heap
        self.pieces = [(start, end, STACKS) for start, end in heap.stack_ranges]
        self.pieces += [(stack.start, stack.end, ENDED_STACKS) for stack in heap.ended_stacks]
        try:
            heap.require_malloc()
        except GdbheapError as error:
            heap.note("malloc-is-other", error=str(error))
        for allocator in heap.allocators:
            self._add(allocator)
        walked = joined(sorted(self.walked))
        for loaded in heap.target.objects:
            # musl donates the unused end of a library's data to malloc.
            own = subtract(sorted(loaded.bss), within(walked, loaded.base, loaded.end))
            self.pieces += [(start, end, DATA) for start, end in own]
        self.pieces = list(_mapped_parts(self.pieces, joined(heap.target.mappings.ranges())))
        self.add_rest()

    def _add(self, allocator: Allocator) -> None:
        try:
            found = list(allocator.pieces())
        except GdbheapError as error:
            self._heap.note("allocator-is-other", error=str(error), allocator=allocator.title)
            return
        self.allocators.append(allocator)
        self.walked.update((piece.start, piece.end) for piece in found if piece.owner is None)
        self.pieces += [(piece.start, piece.end, piece.owner or allocator) for piece in found]

    def add_rest(self) -> None:
        """Add all memory that is in no range of ``pieces`` yet. The mapping of the memory determines the owner."""
        self.pieces.sort(key=lambda piece: piece[:2])
        taken = [(start, end) for start, end, _owner in self.pieces]
        mappings = list(self._heap.target.mappings)
        whole = [(mapping.start, mapping.end) for mapping in mappings]
        starts = [mapping.start for mapping in mappings]
        other, runtime = other_allocator(self._heap), main_runtime(self._heap)
        for start, end in subtract(whole, taken):
            mapping = mappings[bisect_right(starts, start) - 1]
            self.pieces.append((start, end, self._owner_of(mapping, other, runtime)))
        self.pieces.sort(key=lambda piece: piece[:2])

    def _owner_of(self, mapping: Mapping, other: OtherAllocator | None, runtime: Runtime | None) -> LineId:
        if not mapping.private:
            return SHARED if self._heap.is_shared_memory(mapping) else SHARED_FILES
        if not mapping.anonymous:
            return CODE if mapping.executable else DATA if mapping.writable else READ_ONLY
        if other is not None and other.owns(mapping):
            return OF_ALLOCATOR
        if runtime is not None and runtime.owns(mapping):
            return OF_RUNTIME
        if mapping.is_kernels:
            return OF_KERNEL
        return BREAK_OF_OTHERS if mapping.path == BREAK else REST


def _mapped_parts(pieces: list[tuple[int, int, Owner]], mapped: Ranges) -> Iterator[tuple[int, int, Owner]]:
    """Yield the parts of the ranges in ``pieces`` that lie in mappings. A range may reach beyond its mapping, because
    the target's own data gives the sizes of stacks and heaps.

    Ranges of an allocator are yielded unchanged, because they were already limited to mappings.
    """
    starts = [start for start, _end in mapped]
    for start, end, owner in pieces:
        at = max(0, bisect_right(starts, start) - 1)
        if not isinstance(owner, str):
            yield start, end, owner
            continue
        while at < len(mapped) and mapped[at][0] < end:
            first, last = max(start, mapped[at][0]), min(end, mapped[at][1])
            if first < last:
                yield first, last, owner
            at += 1
