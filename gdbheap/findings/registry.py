"""The rules that find findings, in their order, and their application to the evidence of a process."""

from __future__ import annotations

import sys

from gdbheap import _native
from gdbheap.errors import GdbheapError, NotAPython, NotInUse
from gdbheap.findings.after_fork import rule as after_fork
from gdbheap.findings.cached import rule as cached
from gdbheap.findings.capacity import rule as capacity
from gdbheap.findings.contexts import rule as contexts
from gdbheap.findings.cycles import rule as cycles
from gdbheap.findings.equal_strings import rule as equal_strings
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim, Rule
from gdbheap.findings.fragmented import rule as fragmented
from gdbheap.findings.free_chunks import rule as free_chunks
from gdbheap.findings.free_lists import rule as free_lists
from gdbheap.findings.garbage_list import rule as garbage_list
from gdbheap.findings.growing_buffers import rule as growing_buffers
from gdbheap.findings.huge_pages import rule as huge_pages
from gdbheap.findings.jemalloc_arenas import rule as jemalloc_arenas
from gdbheap.findings.jemalloc_unused import rule as jemalloc_unused
from gdbheap.findings.large_chunks import rule as large_chunks
from gdbheap.findings.lazily_freed import rule as lazily_freed
from gdbheap.findings.leak_like import rule as leak_like
from gdbheap.findings.locked import rule as locked
from gdbheap.findings.lost_blocks import rule as lost_blocks
from gdbheap.findings.lost_references import rule as lost_references
from gdbheap.findings.main_top import rule as main_top
from gdbheap.findings.mappings import rule as mappings
from gdbheap.findings.mimalloc_empty import rule as mimalloc_empty
from gdbheap.findings.musl_mappings import rule as musl_mappings
from gdbheap.findings.other_allocator import rule as other_allocator
from gdbheap.findings.other_held import rule as other_held
from gdbheap.findings.pinned_pages import rule as pinned_pages
from gdbheap.findings.pymalloc_arenas import rule as pymalloc_arenas
from gdbheap.findings.runtimes import rule as runtimes
from gdbheap.findings.settlement import settle
from gdbheap.findings.slack import rule as slack
from gdbheap.findings.small_views import rule as small_views
from gdbheap.findings.sparse_huge_pages import rule as sparse_huge_pages
from gdbheap.findings.stacks import rule as stacks
from gdbheap.findings.tcmalloc_unused import rule as tcmalloc_unused
from gdbheap.findings.thread_tops import rule as thread_tops
from gdbheap.findings.tracemalloc import rule as tracemalloc
from gdbheap.findings.uncollectable_cycles import rule as uncollectable_cycles

__all__ = ["RULES", "findings", "findings_with_unknown"]

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
    garbage_list.find,
    slack.find,
    capacity.find,
    leak_like.find,
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
    other_held.find,
    stacks.find,
    after_fork.find,
    other_allocator.find,
    small_views.find,
    equal_strings.find,
)


def findings(evidence: Evidence) -> list[Finding]:
    """Return the findings of all rules, as ``findings_with_unknown`` does."""
    return findings_with_unknown(evidence)[0]


def findings_with_unknown(evidence: Evidence) -> tuple[list[Finding], list[str]]:
    """Return the findings of all rules, the largest first, and the ids of the findings that were not searched for.

    No byte counts in two findings. A rule is skipped if the data that it needs cannot be read. It may also leave
    something out because examining it takes long. In both cases the ids of its findings are unknown. An id may end in
    ``*``, as in ``Figures``.
    """
    found: list[Finding | FindingClaim] = []
    unknown: list[str] = []
    evidence.examined()
    for rule in RULES:
        try:
            found += rule(evidence)
        except (NotAPython, NotInUse):
            pass
        except (GdbheapError, _native.Fault, MemoryError):
            evidence.leave_out()
        if not evidence.examined():
            unknown += _ids(rule)
    kept = settle(evidence, found)
    ids = {finding.id for finding in kept}
    return kept, [name for name in dict.fromkeys(unknown) if name not in ids]


def _ids(rule: Rule) -> list[str]:
    """Return the ids of the findings that a rule may return: those of the figures in its module."""
    kinds = vars(sys.modules[rule.__module__]).values()
    return [name for kind in kinds if isinstance(kind, type) and issubclass(kind, Figures) and kind is not Figures
            for name in kind.ids]  # fmt: skip
