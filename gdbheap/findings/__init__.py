"""Findings: memory that could be returned or avoided. Each finding of docs/findings.md has a folder.

The module ``rule.py`` of a folder makes the finding's record. The module ``words.py`` makes the finding's text and
advice. Only the report imports ``words.py``.
"""

from __future__ import annotations

from contextlib import suppress

from gdbheap import _native
from gdbheap.errors import GdbheapError
from gdbheap.findings.after_fork import rule as after_fork
from gdbheap.findings.cached import rule as cached
from gdbheap.findings.capacity import rule as capacity
from gdbheap.findings.contexts import rule as contexts
from gdbheap.findings.cycles import rule as cycles
from gdbheap.findings.equal_strings import rule as equal_strings
from gdbheap.findings.finding import Claim, Evidence, Finding, Rule
from gdbheap.findings.fragmented import rule as fragmented
from gdbheap.findings.free_chunks import rule as free_chunks
from gdbheap.findings.free_lists import rule as free_lists
from gdbheap.findings.growing_buffers import rule as growing_buffers
from gdbheap.findings.huge_pages import rule as huge_pages
from gdbheap.findings.jemalloc_arenas import rule as jemalloc_arenas
from gdbheap.findings.jemalloc_unused import rule as jemalloc_unused
from gdbheap.findings.large_chunks import rule as large_chunks
from gdbheap.findings.lazily_freed import rule as lazily_freed
from gdbheap.findings.leak_like import rule as one_container
from gdbheap.findings.locked import rule as locked
from gdbheap.findings.lost_blocks import rule as lost_blocks
from gdbheap.findings.lost_references import rule as lost_references
from gdbheap.findings.main_top import rule as main_top
from gdbheap.findings.mappings import rule as mappings
from gdbheap.findings.mimalloc_empty import rule as mimalloc_empty
from gdbheap.findings.musl_mappings import rule as musl_mappings
from gdbheap.findings.other_allocator import rule as other_allocator
from gdbheap.findings.other_held import rule as held
from gdbheap.findings.pinned_pages import rule as pinned_pages
from gdbheap.findings.pymalloc_arenas import rule as pymalloc_arenas
from gdbheap.findings.runtimes import rule as runtimes
from gdbheap.findings.settlement import ordered, placed, settle
from gdbheap.findings.slack import rule as slack
from gdbheap.findings.small_views import rule as small_views
from gdbheap.findings.sparse_huge_pages import rule as sparse_huge_pages
from gdbheap.findings.stacks import rule as stacks
from gdbheap.findings.tcmalloc_unused import rule as tcmalloc_unused
from gdbheap.findings.thread_tops import rule as thread_tops
from gdbheap.findings.tracemalloc import rule as tracemalloc
from gdbheap.findings.uncollectable_cycles import rule as uncollectable_cycles

__all__ = ["RULES", "Evidence", "Finding", "findings", "ordered", "placed"]

RULES: tuple[Rule, ...] = (
    free_chunks.find,
    thread_tops.find,
    pymalloc_arenas.find,
    mimalloc_empty.find,
    jemalloc_unused.find,
    tcmalloc_unused.find,
    cached.find,
    fragmented.find,
    jemalloc_arenas.find,
    musl_mappings.find,
    free_lists.find,
    tracemalloc.find,
    cycles.find,
    uncollectable_cycles.find,
    slack.find,
    capacity.find,
    one_container.find,
    lost_blocks.find,
    lost_references.find,
    pinned_pages.find,
    locked.find,
    large_chunks.find,
    growing_buffers.find,
    huge_pages.find,
    sparse_huge_pages.find,
    main_top.find,
    contexts.find,
    runtimes.find,
    mappings.find,
    lazily_freed.find,
    held.find,
    stacks.find,
    after_fork.find,
    other_allocator.find,
    small_views.find,
    equal_strings.find,
)


def findings(evidence: Evidence) -> list[Finding]:
    """Return the findings of all rules, the largest first; no byte counts in two findings.

    A rule is skipped if the data that it needs cannot be read.
    """
    found: list[Finding | Claim] = []
    for rule in RULES:
        with suppress(GdbheapError, _native.Fault, MemoryError):
            found += rule(evidence)
    return settle(evidence, found)
