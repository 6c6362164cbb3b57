"""Is anything damaged?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap import _native
from gdbheap.errors import GdbheapError, NotAPython
from gdbheap.heap import CAUGHT, Heap
from gdbheap.target.target import Damage

MOST = 1000
UNEXPLAINED = _native.STATES.index("unexplained")


@dataclass(frozen=True)
class Check:
    """The answer of ``heap check``: whether all is well, and how much was looked at. The damage is the heap's.

    ``pages``: those of CPython's mimalloc. ``unexplained``: bytes of arenas between a damaged chunk and the next one
    that the walk could go on from.
    """

    ok: bool
    regions: int
    chunks: int
    pools: int
    unexplained: int
    pages: int = 0


def check(heap: Heap) -> Check:
    """Walk everything. Damage is added to ``heap.damage``. Raises Unsupported without glibc's malloc."""
    totals = heap.chunks.totals()
    chunks = sum(count for _, _, _, tallies in totals for count, _ in tallies)
    follow_bins(heap)
    pools = _check_pools(heap)
    unexplained = sum(tallies[UNEXPLAINED][1] for _, _, _, tallies in totals)
    pages = _check_pages(heap)
    return Check(not heap.partial, len(totals), chunks, pools, unexplained, pages)


def follow_bins(heap: Heap) -> None:
    """Follow every link of every bin, both ways, and count the mmapped chunks: what is wrong is the heap's damage.

    A chunk that ``mp_`` counts and that is not found has a damaged header, or its mapping is gone."""
    _followed, _found = heap.bins, heap.mapped
    heap.glibc.check_mapped()


def _check_pools(heap: Heap) -> int:
    try:
        python = heap.python
    except NotAPython:
        return 0
    except GdbheapError as error:
        heap.note(f"{error}: pymalloc's pools are not checked")
        return 0
    known = {damage.address for damage in python.damage}
    rows = python.pools.verify(heap.target.space, MOST)
    python.damage.extend(Damage(*row) for row in rows if row[0] not in known)
    return python.pools.pool_count


def _check_pages(heap: Heap) -> int:
    """Each page's lists were followed when it was read; one block more or less is a thread's that stands inside."""
    mimalloc = heap.mimalloc
    if mimalloc is None:
        return 0
    known = {damage.address for damage in mimalloc.damage}
    for (address, what, expected, found), is_one in mimalloc.blocks.miscounted:
        if address not in known:
            mimalloc.damage.append(Damage(address, f"{CAUGHT}: {what}" if is_one else what, expected, found))
    return mimalloc.blocks.page_count
