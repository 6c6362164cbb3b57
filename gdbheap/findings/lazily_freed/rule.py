"""Memory of mappings that the program freed by madvise(MADV_FREE): resident until the kernel needs it."""

from __future__ import annotations

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding
from gdbheap.findings.mappings.rule import MAPPED_MEMORY, MIN_PERCENT_OF_RSS, lazily_freed_of, pieces_of


@dataclass(frozen=True)
class LazilyFreed(Figures):
    """Memory of mappings that MADV_FREE freed, and that is resident until the kernel needs it. ``rest``: RSS without
    this memory, in bytes."""

    ids = ("lazily-freed",)
    rest: int


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the memory of mappings that MADV_FREE freed, if it is at least a quarter of
    RSS.

    Memory of allocators is in other findings. The list is empty if the finding's bytes are unknown or too few.
    """
    if evidence.heap.target.pages is None or not evidence.heap.target.rss.lazy:
        return []
    size = lazily_freed_of(evidence, pieces_of(evidence, MAPPED_MEMORY))
    if not evidence.worth(size) or 100 * size < MIN_PERCENT_OF_RSS * evidence.rss:
        return []
    return [Finding("lazily-freed", size, LazilyFreed(max((evidence.heap.target.rss.bytes or 0) - size, 0)))]
