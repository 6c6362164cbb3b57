"""Pages of glibc's arenas that a few blocks keep from being returned."""

from __future__ import annotations

from gdbheap.allocators.glibc.allocator import CACHED_MAPPED, FREE, TOP, GlibcAllocator
from gdbheap.allocators.glibc.trim import given_tops
from gdbheap.allocators.line_ids import line_below
from gdbheap.answers.accounting.partition import total
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding
from gdbheap.findings.pinners import NO_PINNER, Pinner, pinned_groups


@dataclass(frozen=True)
class PinnedPages(Figures):
    """Groups of blocks that pin pages. ``groups``: their number. ``blocks``: the number of the blocks.

    ``held``: the bytes of these blocks, which the finding does not count. ``would_free``: the bytes that freeing the
    blocks would return, including their own. ``pinner``: the variables that hold most of the examined blocks."""

    ids = ("pinned-pages",)
    groups: int
    blocks: int
    held: int
    pinner: Pinner = NO_PINNER
    would_free: int = 0


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about the memory that malloc_trim(0) could return if the groups of blocks that
    ``heap pins`` lists were freed.

    The groups are searched only if ``at_most`` is enough for a finding. The list is empty if the finding's bytes are
    unknown or too few.
    """
    glibc, pages = evidence.glibc, evidence.heap.target.pages
    if glibc is None or pages is None or not evidence.worth(at_most(evidence, glibc)):
        return []
    pinned = pinned_groups(evidence, glibc)
    if pinned is None:
        return []
    totals = pinned.totals
    figures = PinnedPages(totals.groups, totals.blocks, totals.bytes, pinned.pinner, totals.freed)
    return [Finding("pinned-pages", pinned.free, figures, evidence.line("pins", "--allocator=glibc"))]


def at_most(evidence: Evidence, glibc: GlibcAllocator) -> int:
    """Return an upper limit for the bytes that all groups pin: twice the free bytes in pages that malloc_trim(0)
    leaves.

    Freeing a group returns at least twice the bytes of its own blocks. So at least half of the bytes in the returned
    pages are free already. No page is in two groups, and malloc_trim(0) releases none of these pages while the groups
    exist. A page is added for each region, because its last page may extend beyond it."""
    trim, malloc, page = glibc.trim, glibc.malloc, evidence.heap.target.machine.page
    if trim is None:
        return 0
    free = total(evidence.sums, FREE).virtual - total(evidence.sums, CACHED_MAPPED).virtual
    top = total(evidence.sums, line_below(TOP, 0)).virtual if given_tops(evidence.heap.target, malloc) else 0
    return 2 * (free + top - trim.pages + page * len(malloc.stretches))
