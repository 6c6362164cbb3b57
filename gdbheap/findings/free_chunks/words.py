"""Texts of the finding ``free-chunks``: whole pages that free() leaves resident."""

from __future__ import annotations

from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.findings.free_chunks.rule import FreeChunks
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "call malloc_trim(0) after the work that left these holes ('heap trim --yes' calls it now). 'heap holes' lists "
    "the holes"
)
MEASURED = (
    ". Each arena keeps its own peak: before you change a setting, try fewer arenas, or another allocator, on a "
    "recording ('gdbheap trace', then 'gdbheap replay --what-if')"
)
REMEDY = "call malloc_trim(0) after each burst of work ('heap trim --yes' calls it now)"


def _text(figures: FreeChunks) -> str:
    places = [f"{size_text(figures.main)} in the main arena"] if figures.main or not figures.arenas else []
    if figures.arenas:
        places.append(f"{size_text(figures.threads)} in {counted(figures.arenas, 'arena')} of threads")
    where = ", ".join(places)
    if figures.unused_arenas:
        whose = "that arena" if figures.arenas == 1 else f"{figures.unused_arenas} of these arenas"
        where += f"; no thread uses {whose} any more ({size_text(figures.unused)})"
    holes = counted(figures.chunks, "hole outside top chunks keeps", "holes outside top chunks keep")
    return f"{holes} free pages resident: {where}{_after(figures)}"


def _after(figures: FreeChunks) -> str:
    """Return a text that says who holds the blocks after the largest holes."""
    if figures.pinned_by:
        return f"; the block after the largest hole is held by {source_path(figures.pinned_by)}"
    pinner = figures.pinner
    part = f"{pinner.count:,} of " if pinner.count < pinner.examined else ""
    after = f"; the blocks after {part}the {pinner.examined:,} largest holes are held by {pinner.path}"
    after += f", after {pinner.next_count:,} by {pinner.next_path}" if pinner.next_path else ""
    return after if pinner.path else ""


def _advice(figures: FreeChunks) -> str:
    return ADVICE + MEASURED if figures.arenas > 1 else ADVICE


WORDS = Words(FreeChunks, _text, _advice, lambda figures: REMEDY)
