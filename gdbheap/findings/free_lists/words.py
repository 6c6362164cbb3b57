"""free-lists: objects that the interpreter keeps for reuse."""

from __future__ import annotations

from gdbheap.findings.free_lists.rule import FreeLists
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "call gc.collect() after the load that left them: a collection of the oldest generation, and no other, clears the "
    "free lists ('heap pools' says in which sizes blocks come free; an arena goes back only as a whole)"
)


def _text(figures: FreeLists) -> str:
    return (
        f"{counted(figures.objects, 'object')} on the interpreter's free lists are kept for reuse, the most of type "
        f"{figures.type} ({figures.most:,}, {size_text(figures.most_bytes)})"
    )


WORDS = Words(FreeLists, _text, lambda figures: ADVICE)
