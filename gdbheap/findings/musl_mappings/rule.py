"""Mappings of musl's malloc that a few blocks keep from being returned."""

from __future__ import annotations

from dataclasses import field

from gdbheap.allocators.mallocng.allocator import MallocngAllocator
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.pinners import NO_PINNER, Pinner, pinned_groups


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


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the free bytes in resident pages of mappings that are at most half in use. The
    list is empty if the finding's bytes are unknown or too few.
    """
    found = evidence.heap.find_allocator(MallocngAllocator)
    pinned = None if found is None or evidence.heap.target.pages is None else pinned_groups(evidence, found)
    if found is None or pinned is None:
        return []
    regions, totals = found.store.regions(), pinned.totals
    figures = MuslMappings(totals.groups, totals.blocks, totals.bytes, len(regions), pinned.pinner)
    line = evidence.line("pins", f"--allocator={found.name}")
    return [FindingClaim(Finding("musl-mappings", pinned.free, figures, line), lambda: regions)]
