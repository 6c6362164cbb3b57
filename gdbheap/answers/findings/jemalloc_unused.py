"""Dirty and muzzy extents of jemalloc: pages in which nothing is in use, and which it has not given back yet."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.allocators.jemalloc.allocator import JemallocLibraries
from gdbheap.answers.findings.finding import Claim, Evidence, Figures, Finding
from gdbheap.target.ranges import joined


@dataclass(frozen=True)
class JemallocUnused(Figures):
    """``stretches`` of memory without a block in use, their address space (``virtual``), and how much of what is
    resident is ``muzzy``: the kernel takes that by itself when memory is short."""

    ids = ("jemalloc-unused",)
    stretches: int
    virtual: int
    muzzy: int


def find(evidence: Evidence) -> list[Claim]:
    """Their resident bytes."""
    found, pages = evidence.heap.find_allocator(JemallocLibraries), evidence.heap.target.pages
    if found is None or pages is None:
        return []
    dirty, muzzy = ([(pair, pages.count(*pair).resident) for pair in pairs] for pairs in found.store.unused())
    there = joined(sorted(pair for pair, resident in [*dirty, *muzzy] if resident))
    of_muzzy = sum(resident for _pair, resident in muzzy)
    size = of_muzzy + sum(resident for _pair, resident in dirty)
    if not evidence.worth(size):
        return []
    figures = JemallocUnused(len(there), sum(end - start for start, end in there), of_muzzy)
    return [Claim(Finding("jemalloc-unused", size, figures), lambda: there)]
