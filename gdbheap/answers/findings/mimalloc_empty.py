"""Pages and slices of mimalloc in which nothing is in use."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.allocators.mimalloc.library import MimallocLibraries
from gdbheap.answers.findings.finding import Claim, Evidence, Figures, Finding


@dataclass(frozen=True)
class MimallocEmpty(Figures):
    """``stretches`` of memory without a block in use, and their address space (``virtual``)."""

    ids = ("mimalloc-empty",)
    stretches: int
    virtual: int


def find(evidence: Evidence) -> list[Claim]:
    """Their resident bytes."""
    found, pages = evidence.heap.find_allocator(MimallocLibraries), evidence.heap.target.pages
    if found is None or pages is None:
        return []
    empty = [(start, end, pages.count(start, end).resident) for start, end in found.empty()]
    there = [(start, end) for start, end, resident in empty if resident]
    size = sum(resident for *_pair, resident in empty)
    if not evidence.worth(size):
        return []
    figures = MimallocEmpty(len(there), sum(end - start for start, end in there))
    return [Claim(Finding("mimalloc-empty", size, figures), lambda: there)]
