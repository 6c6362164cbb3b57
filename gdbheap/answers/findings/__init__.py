"""What could be given back or avoided: one file for each rule. docs/findings.md says what each rests on and how its
advice was tried."""

from __future__ import annotations

from contextlib import suppress

from gdbheap import _native
from gdbheap.answers.findings import (
    after_fork,
    cached,
    capacity,
    contexts,
    cycles,
    equal_strings,
    fragmented,
    free_chunks,
    free_lists,
    growing_buffers,
    held,
    huge_pages,
    jemalloc_arenas,
    jemalloc_unused,
    large_chunks,
    locked,
    lost_blocks,
    lost_references,
    main_top,
    mappings,
    mimalloc_empty,
    musl_mappings,
    one_container,
    other_allocator,
    pinned_pages,
    pymalloc_arenas,
    runtimes,
    slack,
    small_views,
    sparse_huge_pages,
    stacks,
    tcmalloc_unused,
    thread_tops,
)
from gdbheap.answers.findings.finding import Claim, Evidence, Finding, Rule
from gdbheap.answers.findings.settlement import placed, settle
from gdbheap.errors import GdbheapError

__all__ = ["RULES", "Evidence", "Finding", "findings", "placed"]

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
    cycles.find,
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
    held.find,
    stacks.find,
    after_fork.find,
    other_allocator.find,
    small_views.find,
    equal_strings.find,
)


def findings(evidence: Evidence) -> list[Finding]:
    """Return what all rules find, the largest first; no byte is in two findings. A rule is left out where its evidence
    cannot be read."""
    found: list[Finding | Claim] = []
    for rule in RULES:
        with suppress(GdbheapError, _native.Fault, MemoryError):
            found += rule(evidence)
    return settle(evidence, found)
