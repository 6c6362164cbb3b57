"""Texts of the finding ``pymalloc-arenas``: a few blocks pin arenas of pymalloc."""

from __future__ import annotations

from gdbheap.findings.pinned_pages.words import pinned_advice, pinner_text
from gdbheap.findings.pymalloc_arenas.rule import PymallocArenas
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

NAMES = "'heap pins --allocator=pymalloc' lists the blocks; once they are freed, all of this memory is returned"
EARLY = "allocate long-lived data before the work that filled these arenas"


def _text(figures: PymallocArenas) -> str:
    verb, them = ("is", "it") if figures.arenas == 1 else ("are", "them")
    return (
        f"{figures.arenas:,} of {counted(figures.all_arenas, 'arena')} of pymalloc {verb} mostly free; "
        f"{counted(figures.blocks, 'block keeps', 'blocks keep')} {them}, with {size_text(figures.held)} in total. "
        "pymalloc returns an arena only when it is empty"
        f"{pinner_text(figures.pinner)}"
    )


WORDS = Words(PymallocArenas, _text, lambda figures: pinned_advice(NAMES, figures.blocks, EARLY))
