"""Huge pages of which a few pages are in use: the kernel made all of them resident."""

from __future__ import annotations

from gdbheap import _native
from gdbheap.allocators.allocator import State
from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.answers.findings.settings import NO_HUGE_PAGES
from gdbheap.answers.partition import huge_ranges, total
from gdbheap.words import counted, size_text

# What nobody holds.
FREE = (State.FREE, State.RESERVED, State.TOP)
HUGE_PAGE = 2 << 20


def find(evidence: Evidence) -> list[Claim]:
    """Free pages in huge pages that hold nothing but zeros: nobody has written to them since the kernel gave them."""
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
    whole = total(evidence.sums).huge
    text = (
        f"{size_text(size)} of free memory was never written to, and is resident as the kernel made "
        f"{counted(count, 'page')} of 2 MiB where a part of each was touched: "
        f"of {size_text(whole)} in huge pages {size_text(free)} are free"
    )
    figures = {"huge": whole, "free": free, "huge_pages": count}
    asked = evidence.glibc is not None and bool(evidence.glibc.malloc.par.thp_pagesize)
    finding = Finding("huge-pages", size, text, ADVICE, figures, environment=NO_HUGE_PAGES if asked else {})
    return [Claim(finding, lambda: ranges)]


ADVICE = (
    "start the program without huge pages: with GLIBC_TUNABLES=glibc.malloc.hugetlb=0 where malloc asks for them (this "
    "replaces its other tunables: those that are to stay belong into the same value, separated by colons), else below "
    "prctl(PR_SET_THP_DISABLE), which children inherit; malloc_trim(0) gives back now what lies between chunks in use, "
    "but khugepaged may make huge pages of them again"
)
