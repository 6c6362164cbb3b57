"""Is anything damaged?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap import _native
from gdbheap.errors import GdbheapError, NotAPython
from gdbheap.heap import Heap
from gdbheap.target.target import Damage

MOST = 1000
UNEXPLAINED = _native.STATES.index("unexplained")


@dataclass(frozen=True)
class Check:
    """The answer of ``heap check``: whether all is well, and how much was looked at. The damage is the heap's.

    ``unexplained``: bytes of arenas between a damaged chunk and the next one that the walk could go on from.
    """

    ok: bool
    regions: int
    chunks: int
    pools: int
    unexplained: int


def check(heap: Heap) -> Check:
    """Walk everything. Damage is added to ``heap.damage``. Raises Unsupported without glibc's malloc."""
    totals = heap.chunks.totals()
    chunks = sum(count for _, _, _, tallies in totals for count, _ in tallies)
    _follow_bins(heap)
    pools = _check_pools(heap)
    _count_mapped(heap)
    unexplained = sum(tallies[UNEXPLAINED][1] for _, _, _, tallies in totals)
    return Check(not heap.partial, len(totals), chunks, pools, unexplained)


def _follow_bins(heap: Heap) -> None:
    """Every link of every bin, both ways; what is wrong is the heap's damage."""
    _followed = heap.bins


def _count_mapped(heap: Heap) -> None:
    """A chunk that ``mp_`` counts and that is not found has a damaged header, or its mapping is gone."""
    _found = heap.mapped
    heap.glibc.check_mapped()


def _check_pools(heap: Heap) -> int:
    try:
        python = heap.python
    except NotAPython:
        return 0
    except GdbheapError as error:
        heap.note(str(error))
        return 0
    known = {damage.address for damage in python.damage}
    rows = python.pools.verify(heap.target.space, MOST)
    python.damage.extend(Damage(*row) for row in rows if row[0] not in known)
    return python.pools.pool_count
