"""pymalloc-arenas: arenas of pymalloc that few blocks keep."""

from __future__ import annotations

from gdbheap.findings.pinned_pages.words import pinned_advice
from gdbheap.findings.pymalloc_arenas.rule import PymallocArenas
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

NAMES = "'heap pins --allocator=pymalloc' names the blocks: without them all of this goes back"
EARLY = "make what lives long before the load that filled these arenas"


def _text(figures: PymallocArenas) -> str:
    verb = "is" if figures.arenas == 1 else "are"
    return (
        f"{figures.arenas:,} of {counted(figures.all_arenas, 'arena')} of pymalloc {verb} mostly free, and kept by "
        f"{counted(figures.blocks, 'block')} of {size_text(figures.held)} together: an arena goes back only as a whole"
    )


WORDS = Words(PymallocArenas, _text, lambda figures: pinned_advice(NAMES, figures.blocks, EARLY))
