"""free-chunks: whole pages that free() leaves resident."""

from __future__ import annotations

from gdbheap.answers.findings.free_chunks import FreeChunks
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import counted, size_text

ADVICE = (
    "call malloc_trim(0) after the load that left them ('heap trim --yes' does it now); "
    "'heap holes' shows what stands between them, 'heap pins' what keeps more"
)
REMEDY = "call malloc_trim(0) after the load, which gives it back until the next one ('heap trim --yes' does it now)"


def _text(figures: FreeChunks) -> str:
    where = f"{size_text(figures.main)} in the main arena"
    if figures.arenas:
        where += f", {size_text(figures.threads)} in {counted(figures.arenas, 'arena')} of threads"
    return (
        f"{counted(figures.chunks, 'free chunk')} between used ones hold whole resident pages, which free() does not "
        f"give back: {where}"
    )


WORDS = Words(FreeChunks, _text, lambda figures: ADVICE, lambda figures: REMEDY)
