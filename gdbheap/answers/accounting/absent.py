"""Find the bytes of blocks in use that are not resident: never written by the program, or swapped out by the kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from gdbheap.heap import Heap

__all__ = [
    "BlockBytes", "absent_blocks", "absent_by", "absent_memory", "absent_under", "share_of_rss", "shared_memory",
    "shared_under",
]  # fmt: skip

# Smaller blocks share their pages, so only the largest MOST blocks of each allocator are checked.
MIN_BYTES, MOST = 16 << 10, 50_000
MAX_HEADER = 32
# If a chain of dominators has more objects than this, only its two ends are read.
MAX_OF_CHAIN = 1000

K = TypeVar("K", bound=Hashable)


class BlockBytes(NamedTuple):
    """A block in use: the program's pointer to it, and how many of its bytes are absent or shared."""

    address: int
    bytes: int


def absent_blocks(heap: Heap) -> Iterator[BlockBytes]:
    """Yield each block that has bytes that are not resident, with the number of these bytes. Nothing is yielded if
    residency is unknown."""
    pages = heap.target.pages
    if pages is None or heap.target.refusal is not None:
        return
    for allocator in heap.allocators:
        for address, size in allocator.largest_used(MIN_BYTES, MOST):
            # The header's share of the size is unknown until find(), which costs more than this check.
            if pages.count(address, address + size - MAX_HEADER).resident >= size - MAX_HEADER:
                continue
            block = allocator.find(address)
            end = address + size - MAX_HEADER if block is None else block.end
            yield BlockBytes(address, end - address - pages.count(address, end).resident)


def absent_memory(heap: Heap) -> Iterator[BlockBytes]:
    """Yield the blocks of ``absent_blocks`` and the memory that objects mapped, each with the number of bytes that are
    not resident.
    """
    yield from absent_blocks(heap)
    pages = heap.target.pages
    if pages is None:
        return
    for mapped in heap.mapped:
        yield BlockBytes(mapped.address, mapped.size - pages.count(mapped.address, mapped.end).resident)


def shared_memory(heap: Heap) -> Iterator[BlockBytes]:
    """Yield the shared mappings that objects own, each with the number of all its bytes, resident or not."""
    for mapped in heap.mapped:
        if mapped.shared:
            yield BlockBytes(mapped.address, mapped.size)


def absent_by(heap: Heap, row_of: Callable[[int], K | None]) -> Counter[K]:
    """Return, for each row of an answer, how many bytes of its blocks are not resident.

    ``row_of`` maps a block's node in the graph to its row, or to None if the block has no row.
    """
    graph, found = heap.references.graph, Counter[K]()
    for block in absent_memory(heap):
        number = graph.find(block.address)
        row = None if number is None else row_of(number)
        if row is not None:
            found[row] += block.bytes
    return found


def absent_under(heap: Heap, row_of: Callable[[int], K | None]) -> Counter[K]:
    """Return, for each row of an answer, how many of the bytes that it retains are not resident.

    ``row_of`` maps a node of the graph to its row, or to None if the node has no row.
    """
    return _under(heap, row_of, absent_memory(heap))


def shared_under(heap: Heap, row_of: Callable[[int], K | None]) -> Counter[K]:
    """Return, for each row of an answer, how many of the bytes that it retains are in shared mappings.

    ``row_of`` maps a node of the graph to its row, or to None if the node has no row.
    """
    return _under(heap, row_of, shared_memory(heap))


def _under(heap: Heap, row_of: Callable[[int], K | None], blocks: Iterable[BlockBytes]) -> Counter[K]:
    graph, found = heap.references.graph, Counter[K]()
    for block in blocks:
        number = graph.find(block.address)
        chain = [] if number is None else graph.dominator_chain(number, MAX_OF_CHAIN)
        for row in {row for node in chain if (row := row_of(node)) is not None}:
            found[row] += block.bytes
    return found


def share_of_rss(heap: Heap, resident: int | None) -> float | None:
    """Return ``resident`` bytes divided by RSS, at most 1; None if either is unknown."""
    rss = heap.target.rss.bytes
    return round(min(resident / rss, 1), 4) if rss and resident is not None else None
