"""Huge pages that are mostly unused; the kernel makes each huge page resident as a whole."""

from __future__ import annotations

from dataclasses import field

from gdbheap import _native
from gdbheap.allocators.allocator import State
from gdbheap.answers.accounting.partition import huge_ranges, total
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.settings import NO_HUGE_PAGES

# The states of memory that is not in use.
FREE = (State.FREE, State.RESERVED, State.TOP)
HUGE_PAGE = 2 << 20


@dataclass(frozen=True)
class HugePages(Figures):
    """Huge pages with free memory.

    ``huge``: the bytes in huge pages. ``free``: how many of these are free. ``untouched``: how many of the free bytes
    were never written to. ``huge_pages``: the number of huge pages that have free pages."""

    ids = ("huge-pages",)
    huge: int
    free: int
    huge_pages: int
    untouched: int = field(metadata=UNLISTED)


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the free pages of zeros in huge pages.

    Nothing was written to these pages since the kernel made them. The list is empty if the finding's bytes are unknown
    or too few.
    """
    heap, pages = evidence.heap, evidence.heap.target.pages
    if pages is None or not pages.knows_huge:
        return []
    owners = evidence.of(*FREE)
    free = sum(total(evidence.sums, owner).whole_huge for owner in owners)
    if not evidence.worth(min(free, heap.target.rss.huge or 0)):
        return []
    ranges = huge_ranges(heap, owners)
    size = _native.zero_pages(heap.target.space, ranges)
    if not evidence.worth(size):
        return []
    count = len({at for start, end in ranges for at in range(start // HUGE_PAGE, (end - 1) // HUGE_PAGE + 1)})
    figures = HugePages(total(evidence.sums).huge, free, count, size)
    asked = evidence.glibc is not None and bool(evidence.glibc.malloc.par.thp_pagesize)
    finding = Finding("huge-pages", size, figures, environment=NO_HUGE_PAGES if asked else {})
    return [FindingClaim(finding, lambda: ranges)]
