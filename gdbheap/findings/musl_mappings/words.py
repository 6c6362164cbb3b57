"""musl-mappings: mappings of musl's malloc that few blocks keep."""

from __future__ import annotations

from gdbheap.findings.musl_mappings.rule import MuslMappings
from gdbheap.findings.pinned_pages.words import pinned_advice
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

NAMES = (
    "'heap pins --allocator=mallocng' names the blocks: without them most of this goes back, and what stays is reused"
)
EARLY = "make what lives long before the load that filled these mappings"


def _text(figures: MuslMappings) -> str:
    verb = "is" if figures.mappings == 1 else "are"
    return (
        f"{figures.mappings:,} of {counted(figures.all_mappings, 'mapping')} of musl's malloc {verb} mostly free, and "
        f"kept by {counted(figures.blocks, 'block')} in slots of {size_text(figures.held)} together: a mapping goes "
        "back only as a whole"
    )


WORDS = Words(MuslMappings, _text, lambda figures: pinned_advice(NAMES, figures.blocks, EARLY))
