"""Huge pages that were written only in part. They are in memory in use or in mapped memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field

from gdbheap import _native
from gdbheap.allocators.allocator import State
from gdbheap.answers.accounting.partition import DATA, OTHER, STACKS, huge_ranges, total
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.huge_pages.rule import HUGE_PAGE
from gdbheap.findings.settings import NO_HUGE_PAGES
from gdbheap.heap import Heap
from gdbheap.targets.ranges import Ranges

# Searched in addition to blocks in use: mapped memory, stacks, and data of files.
BESIDE = (OTHER, STACKS, DATA)
# The most huge pages that are read: reading more than 256 MiB takes longer than everything else.
MAX_READ = 128


@dataclass(frozen=True)
class SparseHugePages(Figures):
    """Huge pages with pages of zeros. ``huge``: the bytes in huge pages. ``huge_pages``: the number of these huge
    pages.

    ``zeros``: how many of the bytes lie in pages of zeros. ``sampled``: whether ``zeros`` is estimated from some of the
    huge pages. ``by_malloc``: whether glibc's malloc asks for huge pages. ``address``: the start of the mapping with
    the most huge pages."""

    ids = ("sparse-huge-pages",)
    huge: int
    huge_pages: int
    zeros: int = field(metadata=UNLISTED)
    sampled: bool
    by_malloc: bool
    address: int | None = field(default=None, metadata=UNLISTED)


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the pages of zeros in huge pages that also contain other bytes.

    A huge page of nothing but zeros does not count, because a program may have written these zeros. The list is empty
    if the finding's bytes are unknown or too few.
    """
    heap, pages = evidence.heap, evidence.heap.target.pages
    if pages is None or not pages.knows_huge or heap.target.remote:
        return []
    owners = [*evidence.of(State.USED), *BESIDE]
    whole = sum(total(evidence.sums, owner).whole_huge for owner in owners)
    if not evidence.worth(min(whole, heap.target.rss.huge or 0)):
        return []
    groups = list(_by_huge_page(huge_ranges(heap, owners)))
    step = -(-len(groups) // MAX_READ)
    read = groups[::step]
    zeros = sum(_zeros(heap.target.space, ranges) for ranges in read) * len(groups) // max(1, len(read))
    if not evidence.worth(zeros):
        return []
    by_malloc = evidence.glibc is not None and bool(evidence.glibc.malloc.par.thp_pagesize)
    start = _most(heap, groups)
    figures = SparseHugePages(whole, len(groups), zeros, step > 1, by_malloc, start)
    finding = Finding("sparse-huge-pages", zeros, figures, environment=NO_HUGE_PAGES if by_malloc else {})
    return [FindingClaim(finding, lambda: [pair for ranges in groups for pair in ranges])]


def _most(heap: Heap, groups: list[Ranges]) -> int | None:
    """Return the start of the mapping with the most huge pages; None if there is none."""
    found = [heap.target.mappings.find(ranges[0][0]) for ranges in groups]
    starts = Counter(mapping.start for mapping in found if mapping is not None)
    return starts.most_common(1)[0][0] if starts else None


def _by_huge_page(ranges: Ranges) -> Iterator[Ranges]:
    """Yield, for each huge page, the parts of the ranges that lie in it."""
    found: dict[int, Ranges] = {}
    for start, end in ranges:
        for at in range(start // HUGE_PAGE * HUGE_PAGE, end, HUGE_PAGE):
            found.setdefault(at, []).append((max(start, at), min(end, at + HUGE_PAGE)))
    yield from found.values()


def _zeros(space: _native.Space, ranges: Ranges) -> int:
    """Return the bytes in pages of zeros within one huge page; 0 if the whole huge page is zeros."""
    zeros = _native.zero_pages(space, ranges)
    start = ranges[0][0] // HUGE_PAGE * HUGE_PAGE
    is_empty = zeros == sum(end - first for first, end in ranges)
    return 0 if is_empty and _native.zero_pages(space, [(start, start + HUGE_PAGE)]) == HUGE_PAGE else zeros
