"""Arenas of pymalloc that few blocks keep."""

from __future__ import annotations

from gdbheap import _native
from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.target.ranges import PAGE_SIZE
from gdbheap.words import counted, size_text


def find(evidence: Evidence) -> list[Claim]:
    """The resident pages of arenas whose blocks in use are at most half of them; from the pools' headers alone."""
    python = evidence.heap.python_or_none if evidence.heap.target.refusal is None else None
    pages = evidence.heap.target.pages
    if python is None or pages is None:
        return []
    _, (arenas, blocks, size, freed) = _native.pins_of_arenas(python.pools, pages, evidence.kept, PAGE_SIZE, 0)
    if not evidence.worth(freed):
        return []
    text = (
        f"{counted(arenas, 'arena')} of pymalloc, of {len(python.arenas):,}, are kept by "
        f"{counted(blocks, 'block')} of {size_text(size)} together: an arena goes back only as a whole"
    )
    advice = (
        "'heap pins --allocator=pymalloc' names the blocks: without them all of this goes back. Drop them, or make "
        "what lives long before the load that filled these arenas"
    )
    figures = {"arenas": arenas, "blocks": blocks, "held": size}
    commands = evidence.line("pins", "--allocator=pymalloc")
    return [Claim(Finding("pymalloc-arenas", freed, text, advice, figures, commands), python.ranges)]
