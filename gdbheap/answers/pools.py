"""What does pymalloc hold in each size class, as ``sys._debugmallocstats()`` counts?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.heap import Heap


@dataclass(frozen=True)
class PoolClass:
    """One size class: block size in bytes, pools that are not empty, blocks in use, blocks available in those pools."""

    size: int
    pools: int
    used: int
    free: int


@dataclass(frozen=True)
class Pools:
    """The answer of ``heap pools``; ``free_pools`` are ``sys._debugmallocstats()``' "unused pools"."""

    arena_size: int
    pool_size: int
    arenas: int
    free_pools: int
    classes: list[PoolClass]


def pools(heap: Heap) -> Pools:
    """Every size class that has pools, by size. Raises NotAPython or Unsupported."""
    python = heap.python
    rows = [PoolClass(*row) for row in python.pools.classes()]
    return Pools(python.arena_size, python.pool_size, len(python.arenas), python.free_pools, rows)
