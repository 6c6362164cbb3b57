"""Check the heap for damage."""

from __future__ import annotations

from collections import Counter

from gdbheap.answers.aborted import Abort, abort_of
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap


@dataclass(frozen=True)
class Check:
    """The answer of ``heap check``: how much was checked. The damage itself is in ``heap.damage``."""

    ok: bool
    regions: int
    chunks: int
    pools: int
    unexplained: int
    page_count: int = 0
    slabs: int = 0
    spans: int = 0
    abort: Abort | None = None


def check(heap: Heap) -> Check:
    """Walk all allocators, and add the damage to ``heap.damage``. Raises Unsupported if malloc is unknown."""
    heap.require_malloc()
    counts: Counter[str] = Counter()
    unexplained = 0
    for allocator in heap.allocators:
        looked = allocator.check()
        counts.update(looked.counts)
        unexplained += looked.unexplained
    for content in heap.asked_contents:
        content.check()
    for kind, error in heap.unknown_allocators.items():
        heap.note("allocator-not-checked", error=str(error), allocator=kind.title)
    pages, slabs, spans = (counts[name] for name in ("pages", "slabs", "spans"))
    regions, chunks, pools = (counts[name] for name in ("regions", "chunks", "pools"))
    abort = abort_of(heap)
    return Check(not heap.partial, regions, chunks, pools, unexplained, pages, slabs, spans, abort)


def find_damage(heap: Heap) -> None:
    """Check only malloc, and add the damage to ``heap.damage``. Raises GdbheapError if malloc is unknown."""
    heap.malloc.check()
