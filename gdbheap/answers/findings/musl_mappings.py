"""Mappings of musl's malloc that few blocks keep."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbheap.allocators.mallocng.allocator import MallocngAllocator
from gdbheap.answers.findings.finding import UNLISTED, Claim, Evidence, Figures, Finding


@dataclass(frozen=True)
class MuslMappings(Figures):
    """``mappings`` that few ``blocks`` keep, the slots of these in bytes (``held``), and how many mappings there are in
    all."""

    ids = ("musl-mappings",)
    mappings: int
    blocks: int
    held: int
    all_mappings: int = field(metadata=UNLISTED)


def find(evidence: Evidence) -> list[Claim]:
    """The resident pages of mappings whose blocks in use are at most half of them."""
    found = evidence.heap.find_allocator(MallocngAllocator)
    if found is None or evidence.heap.target.pages is None:
        return []
    totals = found.pins(evidence.kept, evidence.heap.target.machine.page, 0).totals
    if not evidence.worth(totals.freed):
        return []
    regions = found.store.regions()
    figures = MuslMappings(totals.groups, totals.blocks, totals.bytes, len(regions))
    line = evidence.line("pins", f"--allocator={found.name}")
    return [Claim(Finding("musl-mappings", totals.freed, figures, line), lambda: regions)]
