"""What does malloc hold in each arena, by ``malloc_stats``' own definitions?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.heap import Heap


@dataclass(frozen=True)
class Arena:
    """One arena; sizes in bytes. ``system`` and ``in_use`` are ``malloc_stats``' "system bytes" and "in use bytes"."""

    index: int
    address: int
    system: int
    in_use: int
    free: int
    fast: int
    tcache: int
    top: int
    used_chunks: int
    free_chunks: int


@dataclass(frozen=True)
class Mmapped:
    """Chunks with a mapping of their own, as ``mp_`` counts them."""

    count: int
    bytes: int


@dataclass(frozen=True)
class Total:
    """All arenas and the mmapped chunks, as under ``malloc_stats``' "Total (incl. mmap)"."""

    system: int
    in_use: int


@dataclass(frozen=True)
class Arenas:
    """The answer of ``heap arenas``."""

    arenas: list[Arena]
    mmapped: Mmapped
    total: Total


def arenas(heap: Heap) -> Arenas:
    """Every arena in the order in which ``malloc_stats`` prints them. Raises Unsupported without glibc's malloc."""
    glibc = heap.walked
    rows = [
        Arena(t.index, t.address, t.system, t.in_use, t.free, t.fast, t.tcache, t.top, t.used_chunks, t.free_chunks)
        for t in glibc.totals()
    ]
    par = glibc.par
    system = sum(row.system for row in rows) + par.mmapped_mem
    in_use = sum(row.in_use for row in rows) + par.mmapped_mem
    return Arenas(rows, Mmapped(par.n_mmaps, par.mmapped_mem), Total(system, in_use))
