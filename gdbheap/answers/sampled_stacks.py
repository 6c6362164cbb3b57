"""Group sampled blocks in use by the stack that allocated them, if jemalloc samples (``MALLOC_CONF=prof:true``)."""

from __future__ import annotations

from typing import ClassVar

from gdbheap import _native
from gdbheap.allocators.jemalloc.allocator import JemallocLibraries
from gdbheap.answers.sizes import sum_of_known
from gdbheap.dataclass import dataclass
from gdbheap.errors import Unsupported
from gdbheap.heap import Heap
from gdbheap.stack_frames import NATIVE, StackFrame
from gdbheap.targets.frames import FunctionNames

NO_SAMPLES = (
    "no allocations were sampled: build jemalloc with --enable-prof, and start the program with MALLOC_CONF=prof:true; "
    "'gdbheap trace --stacks' needs no preparation"
)


@dataclass(frozen=True)
class SampledRow:
    """An allocating stack: its return addresses, innermost first, and its frames, outermost first.

    ``allocator_frames``: how many of the innermost frames belong to the allocator. ``address``: the address of the
    first block that the stack allocated. ``likely_count`` and ``likely_bytes``: estimates for all blocks, sampled or
    not; None if unknown.
    """

    return_addresses: list[int]
    frames: list[StackFrame]
    allocator_frames: int
    count: int
    bytes: int
    likely_count: int | None
    likely_bytes: int | None
    address: int


@dataclass(frozen=True)
class SampledStacks:
    """The answer of ``heap chunks --by=stack``. The sums count all stacks, even if rows were cut."""

    sums: ClassVar[tuple[str, ...]] = ("count", "bytes", "likely_count", "likely_bytes")
    rows: list[SampledRow]
    matching: int
    count: int
    bytes: int
    likely_count: int | None
    likely_bytes: int | None


def sampled_stacks(heap: Heap, by_count: bool = False, top: int | None = None) -> SampledStacks:
    """Return the first ``top`` stacks of sampled blocks in use, those with the most bytes first.

    ``by_count``: those with the most blocks first. Raises Unsupported if nothing is sampled.
    """
    found = heap.find_allocator(JemallocLibraries)
    rows = [] if found is None else list(found.samples)
    if found is None or not rows:
        raise Unsupported(NO_SAMPLES)
    if by_count:
        rows.sort(key=lambda row: -row.blocks)
    names = FunctionNames(heap.target)
    return SampledStacks(
        [_row(heap, found, row, names) for row in rows[:top]],
        len(rows),
        sum(row.blocks for row in rows),
        sum(row.bytes for row in rows),
        sum_of_known(row.likely_blocks for row in rows),
        sum_of_known(row.likely_bytes for row in rows),
    )


def _row(heap: Heap, found: JemallocLibraries, row: _native.SampledStack, names: FunctionNames) -> SampledRow:
    addresses, module = row.frames, found.roots[row.root].module
    # A return address points past the call.
    objects = [heap.target.object_of(address - 1) for address in addresses]
    frames = [
        StackFrame(names.at(address - 1), names.path(loaded) if loaded else "", None, NATIVE)
        for address, loaded in zip(addresses, objects)
    ]
    own = 0
    while own < len(objects) and objects[own] is module and module.path != heap.target.exe:
        own += 1
    return SampledRow(
        addresses, frames[::-1], own, row.blocks, row.bytes, row.likely_blocks, row.likely_bytes, row.first
    )
