"""Arenas of pymalloc that few blocks keep."""

from __future__ import annotations

from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.words import counted, size_text


def find(evidence: Evidence) -> list[Claim]:
    """The resident pages of arenas whose blocks in use are at most half of them; from the pools' headers alone."""
    python = evidence.heap.find_allocator(PymallocAllocator)
    if python is None or evidence.heap.target.pages is None:
        return []
    totals = python.pins(evidence.kept, evidence.heap.target.machine.page, 0).totals
    arenas, blocks, size, freed = totals.groups, totals.blocks, totals.bytes, totals.freed
    if not evidence.worth(freed):
        return []
    text = (
        f"{counted(arenas, 'arena')} of pymalloc, of {len(python.pymalloc.arenas):,}, are kept by "
        f"{counted(blocks, 'block')} of {size_text(size)} together: an arena goes back only as a whole"
    )
    advice = (
        "'heap pins --allocator=pymalloc' names the blocks: without them all of this goes back. Drop them, or make "
        "what lives long before the load that filled these arenas"
    )
    figures = {"arenas": arenas, "blocks": blocks, "held": size}
    commands = evidence.line("pins", "--allocator=pymalloc")
    return [Claim(Finding("pymalloc-arenas", freed, text, advice, figures, commands), python.ranges)]
