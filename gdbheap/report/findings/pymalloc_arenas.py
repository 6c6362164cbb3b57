"""pymalloc-arenas: arenas of pymalloc that few blocks keep."""

from __future__ import annotations

from gdbheap.answers.findings.pymalloc_arenas import PymallocArenas
from gdbheap.report.findings.pinned_pages import pinned_advice
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import counted, size_text

NAMES = "'heap pins --allocator=pymalloc' names the blocks: without them all of this goes back"
EARLY = "make what lives long before the load that filled these arenas"


def _text(figures: PymallocArenas) -> str:
    return (
        f"free memory in {counted(figures.arenas, 'arena')} of pymalloc, of {figures.all_arenas:,}, is kept by "
        f"{counted(figures.blocks, 'block')} of {size_text(figures.held)} together: an arena goes back only as a whole"
    )


WORDS = Words(PymallocArenas, _text, lambda figures: pinned_advice(NAMES, figures.blocks, EARLY))
