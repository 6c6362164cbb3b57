"""Texts of the finding ``tcmalloc-unused``: free pages of tcmalloc's page heap."""

from __future__ import annotations

from gdbheap.findings.tcmalloc_unused.rule import TcmallocUnused
from gdbheap.report.text.numbers import counted
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "call MallocExtension_ReleaseFreeMemory() in the program, or start it with TCMALLOC_AGGRESSIVE_DECOMMIT=1, which "
    "returns free pages at once (at the cost of page faults). Otherwise tcmalloc returns few pages, and only while "
    "the program frees other pages: with TCMALLOC_RELEASE_RATE=10, it returns one page for each hundred freed pages"
)


def _text(figures: TcmallocUnused) -> str:
    whose = f" of {' and '.join(figures.owners)}" if figures.owners else ""
    return f"tcmalloc{whose} keeps {counted(figures.stretches, 'free span')}, which it has not returned"


WORDS = Words(TcmallocUnused, _text, lambda figures: ADVICE)
