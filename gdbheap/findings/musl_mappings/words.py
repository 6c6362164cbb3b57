"""Texts of the finding ``musl-mappings``: a few blocks pin whole mappings of musl's malloc."""

from __future__ import annotations

from gdbheap.findings.musl_mappings.rule import MuslMappings
from gdbheap.findings.pinned_pages.words import pinned_advice, pinner_text
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

NAMES = (
    "'heap pins --allocator=mallocng' lists the blocks; once they are freed, most of this memory is returned, and "
    "the rest is reused"
)
EARLY = "allocate long-lived data before the work that filled these mappings"


def _text(figures: MuslMappings) -> str:
    verb, them = ("is", "it") if figures.mappings == 1 else ("are", "them")
    return (
        f"{figures.mappings:,} of {counted(figures.all_mappings, 'mapping')} of musl's malloc {verb} mostly free; "
        f"{counted(figures.blocks, 'block keeps', 'blocks keep')} {them}, in slots of {size_text(figures.held)} in "
        "total. musl returns a mapping only when it is empty"
        f"{pinner_text(figures.pinner)}"
    )


WORDS = Words(MuslMappings, _text, lambda figures: pinned_advice(NAMES, figures.blocks, EARLY))
