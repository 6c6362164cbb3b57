"""Mappings of musl's malloc that a few blocks keep from being returned."""

from __future__ import annotations

from dataclasses import field

from gdbheap.allocators.mallocng.allocator import MallocngAllocator
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Claim, Evidence, Figures, Finding
from gdbheap.findings.pinned_pages.rule import free_of
from gdbheap.findings.pinners import MAX_GROUPS, NO_PINNER, Pinner, pinner_of_groups


@dataclass(frozen=True)
class MuslMappings(Figures):
    """The number of ``mappings`` that a few ``blocks`` pin, and the bytes of these blocks' slots (``held``).

    ``all_mappings``: the number of all mappings of musl's malloc. ``pinner``: the variable that holds most of the
    examined blocks.
    """

    ids = ("musl-mappings",)
    mappings: int
    blocks: int
    held: int
    all_mappings: int = field(metadata=UNLISTED)
    pinner: Pinner = NO_PINNER


def find(evidence: Evidence) -> list[Claim]:
    """Return a finding about the free bytes in resident pages of mappings that are at most half in use."""
    found = evidence.heap.find_allocator(MallocngAllocator)
    if found is None or evidence.heap.target.pages is None:
        return []
    groups = found.pins(evidence.kept, evidence.heap.target.machine.page, MAX_GROUPS)
    totals = groups.totals
    free = free_of(totals)
    if not evidence.worth(free):
        return []
    regions = found.store.regions()
    pinner = pinner_of_groups(evidence, found, groups.rows)
    figures = MuslMappings(totals.groups, totals.blocks, totals.bytes, len(regions), pinner)
    line = evidence.line("pins", f"--allocator={found.name}")
    return [Claim(Finding("musl-mappings", free, figures, line), lambda: regions)]
