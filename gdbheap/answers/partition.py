"""Whose is each byte of the address space, and each page? The owners are the leaves of the ledger.

A page that several owners touch belongs to one of them, in this order (the last wins): free memory, top, an
allocator's own overhead, other memory, shared memory, stacks, files, mmapped chunks, blocks in use. So the pages under
"free" are whole pages that nobody holds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.allocators.recognised import OtherAllocator
from gdbheap.allocators.runtimes import Runtime
from gdbheap.errors import GdbheapError
from gdbheap.heap import Heap
from gdbheap.target.mappings import Mapping
from gdbheap.target.ranges import Ranges, joined, subtract

# Ascending rank: the later owner gets a page that both touch. One with a star is there once for each arena.
RANKED = (
    "glibc.free.*",
    "glibc.free.mmapped",
    "pymalloc.free.pools",
    "pymalloc.free.blocks",
    "mimalloc.free.reserve",
    "mimalloc.free.spans",
    "mimalloc.free.blocks",
    "glibc.top.*",
    "glibc.overhead.*",
    "pymalloc.overhead",
    "mimalloc.overhead",
    "other.rest",
    "other.break",
    "other.kernel",
    "other.allocator",
    "other.runtime",
    "shared",
    "stacks",
    "file.readonly",
    "file.data",
    "file.text",
    "glibc.mmapped",
    "glibc.used.*",
    "pymalloc.used",
    "mimalloc.used",
    "unexplained",
)
ALLOCATORS = frozenset(owner.partition(".")[0] for owner in RANKED if owner.split(".")[1:2] == ["used"])
STATES = {
    "used": "glibc.used",
    "free": "glibc.free",
    "tcache": "glibc.free",
    "fast": "glibc.free",
    "top": "glibc.top",
    "fencepost": "glibc.overhead",
    "foreign": "other.break",
    "unexplained": "unexplained",
}
PYMALLOC = ("pymalloc.used", "pymalloc.free.blocks", "pymalloc.free.pools", "pymalloc.overhead")
MIMALLOC = ("mimalloc.used", "mimalloc.free.blocks", "mimalloc.free.spans", "mimalloc.overhead", "unexplained")
WITH_BLOCKS = ("region", "arena", "segment")
BREAK = "[heap]"

# Above it is the kernel's half; [vsyscall] lies there, which is in every process's maps and nobody's memory.
USER_END = 1 << 63


@dataclass(frozen=True)
class Sum:
    """Bytes of one owner: all of them; the whole pages that belong to it and, of these, the resident ones, the swapped
    ones, those that the kernel's zero page stands for (not resident), and the resident ones mapped by huge pages."""

    virtual: int = 0
    pages: int = 0
    resident: int = 0
    swapped: int = 0
    zero: int = 0
    huge: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(*(one + two for one, two in zip(vars(self).values(), vars(other).values())))


Sums = dict[str, Sum]
"""By owner: an id of the ledger's leaves, "glibc.used.0" for the used chunks of arena 0."""


def total(sums: Sums, name: str = "") -> Sum:
    """The sum over the owners below ``name``, over all of them without it."""
    found = Sum()
    for owner, values in sums.items():
        if not name or _is_below(owner, name):
            found += values
    return found


def _is_below(owner: str, name: str) -> bool:
    return owner == name or owner.startswith(name + ".")


def other_allocator(heap: Heap) -> OtherAllocator | None:
    """The allocator beside glibc's, None when none shows or no memory can be read."""
    return heap.other_allocator if heap.target.refusal is None else None


def main_runtime(heap: Heap) -> Runtime | None:
    """The runtime that is known to have anonymous mappings of its own, None when there is none or it is not certain."""
    if heap.target.refusal is not None:
        return None
    return next((found for found in heap.runtimes if any(map(found.owns, heap.target.mappings))), None)


def partition(heap: Heap, cuts: Sequence[int] = ()) -> list[Sums]:
    """What each owner has in each cell of the address space: below the first cut, from there to the second, and so on.

    ``cuts``: ascending addresses of whole pages. What cannot be looked into (no glibc, no memory) stays under files,
    stacks and other."""
    layout = _Layout(heap)
    if heap.target.refusal is None:
        layout.build()
    else:
        heap.note(f"{heap.target.refusal}: memory is told apart by its mappings alone, not by what is in use")
        layout.add_rest()
    return _Sweep(heap, layout, cuts).run()


def huge_ranges(heap: Heap, parts: Sequence[str]) -> Ranges:
    """The whole pages of the owners below ``parts`` that the kernel maps by huge pages."""
    layout = _Layout(heap)
    layout.build()
    sweep = _Sweep(heap, layout, (), parts)
    sweep.run()
    return sweep.kept


class _Sweep:
    """The pieces of a layout, swept over by the native side."""

    def __init__(self, heap: Heap, layout: _Layout, cuts: Sequence[int], parts: Sequence[str] = ()) -> None:
        self._heap, self._layout = heap, layout
        self._owners = list(_ranked(layout.arena_count))
        self._ranks = {owner: rank for rank, owner in enumerate(self._owners)}
        kept = [rank for owner, rank in self._ranks.items() if any(_is_below(owner, part) for part in parts)]
        self._sweep = _native.Sweep(heap.target.pages, len(self._owners), cuts, kept)

    @property
    def kept(self) -> Ranges:
        """Of the owners below ``parts`` what lies in huge pages."""
        return self._sweep.huge_ranges()

    def run(self) -> list[Sums]:
        at = 0
        for start, end, owner in self._layout.pieces:
            if start < at:
                self._heap.note(f"two owners claim the bytes at {start:#x}: they do not count for {owner}, the second")
                start = at
            if start < end:
                at = self._add(start, end, owner)
        return [{self._owners[rank]: Sum(*values) for rank, values in cell} for cell in self._sweep.finish()]

    def _add(self, start: int, end: int, owner: str) -> int:
        heap, layout = self._heap, self._layout
        if owner == "region" and start in layout.regions:
            return self._sweep.add_chunks(heap.chunks, start, self._states(layout.regions[start]))
        if owner == "arena" and start in layout.arenas:
            parts = tuple(self._ranks[name] for name in PYMALLOC)
            return self._sweep.add_arena(heap.target.space, heap.python.pools, start, parts)
        if owner == "segment" and heap.mimalloc is not None:
            parts = tuple(self._ranks[name] for name in MIMALLOC)
            return self._sweep.add_segment(heap.mimalloc.blocks, start, parts)
        self._sweep.add(start, end, self._ranks.get(owner, self._ranks["unexplained"]))
        return end

    def _states(self, arena: int) -> dict[str, int]:
        found = {}
        for state, owner in STATES.items():
            found[state] = self._ranks.get(f"{owner}.{arena}", self._ranks.get(owner, 0))
        return found


def _ranked(arenas: int) -> Iterator[str]:
    for owner in RANKED:
        if owner.endswith("*"):
            yield from (f"{owner[:-1]}{index}" for index in range(max(arenas, 1)))
        else:
            yield owner


class _Layout:
    """The address space as ascending pieces, each with an owner or with blocks that say theirs.

    ``regions``: the arena of each stretch of glibc's, by its start; ``arenas``: where pymalloc's arenas start."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self.pieces: list[tuple[int, int, str]] = []
        self.regions: dict[int, int] = {}
        self.arenas: set[int] = set()
        self.arena_count = 0

    def build(self) -> None:
        """Allocators first; what they leave of each mapping belongs to the mapping's own owner."""
        heap = self._heap
        self.pieces = [(start, end, "stacks") for start, end in heap.stack_ranges]
        try:
            self._add_glibc()
        except GdbheapError as error:
            heap.note(f"{error}: malloc's memory counts as other memory")
        python = heap.python_or_none
        if python is not None:
            self.arenas = {start for start, _end in python.ranges()}
            self.pieces += [(start, end, "arena") for start, end in python.ranges()]
        if heap.mimalloc is not None:
            self.pieces += [(segment.start, segment.end, "segment") for segment in heap.mimalloc.segments]
            self.pieces += [(start, end, "mimalloc.free.reserve") for start, end in heap.mimalloc.reserved()]
        for loaded in heap.target.objects:
            self.pieces += [(start, end, "file.data") for start, end in loaded.bss]
        self.pieces = list(_mapped_parts(self.pieces, joined(heap.target.mappings.ranges())))
        self.add_rest()

    def _add_glibc(self) -> None:
        heap = self._heap
        _chunks, glibc = heap.chunks, heap.glibc
        self.arena_count = len(glibc.arenas)
        stretches = sorted((stretch.start, stretch.end) for stretch in glibc.stretches)
        self.regions = {stretch.start: stretch.arena for stretch in glibc.stretches}
        self.pieces += [(start, end, "region") for start, end in stretches]
        for start, end in subtract(sorted(glibc.owned_ranges()), stretches):
            found = glibc.heap_at(start)
            self.pieces.append((start, end, f"glibc.overhead.{found.arena if found else 0}"))
        owners = {True: "glibc.free.mmapped", False: "glibc.mmapped"}
        self.pieces += [(chunk.base, chunk.end, owners[chunk.cached]) for chunk in heap.mapped]

    def add_rest(self) -> None:
        """What is in no piece yet, by its mapping."""
        self.pieces.sort()
        taken = [(start, end) for start, end, _owner in self.pieces]
        mappings = list(self._heap.target.mappings)
        whole = [(mapping.start, mapping.end) for mapping in mappings if mapping.start < USER_END]
        starts = [mapping.start for mapping in mappings]
        other, runtime = other_allocator(self._heap), main_runtime(self._heap)
        for start, end in subtract(whole, taken):
            mapping = mappings[bisect_right(starts, start) - 1]
            self.pieces.append((start, end, _owner_of(mapping, other, runtime)))
        self.pieces.sort()


def _mapped_parts(pieces: list[tuple[int, int, str]], mapped: Ranges) -> Iterator[tuple[int, int, str]]:
    """The pieces without what lies in no mapping: the sizes of stacks and heaps are the target's own words. What says
    its own blocks was bounded by mappings when it was found."""
    starts = [start for start, _end in mapped]
    for start, end, owner in pieces:
        at = max(0, bisect_right(starts, start) - 1)
        if owner in WITH_BLOCKS:
            yield start, end, owner
            continue
        while at < len(mapped) and mapped[at][0] < end:
            first, last = max(start, mapped[at][0]), min(end, mapped[at][1])
            if first < last:
                yield first, last, owner
            at += 1


def _owner_of(mapping: Mapping, other: OtherAllocator | None, runtime: Runtime | None) -> str:
    if not mapping.private:
        return "shared"
    if not mapping.anonymous:
        return "file.text" if mapping.executable else "file.data" if mapping.writable else "file.readonly"
    if other is not None and other.owns(mapping):
        return "other.allocator"
    if runtime is not None and runtime.owns(mapping):
        return "other.runtime"
    if mapping.is_kernels:
        return "other.kernel"
    return "other.break" if mapping.path == BREAK else "other.rest"
