"""Texts of the finding ``lazily-freed``: memory of mappings that the program freed by madvise(MADV_FREE)."""

from __future__ import annotations

from gdbheap.findings.lazily_freed.rule import LazilyFreed
from gdbheap.report.text.numbers import size_text
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "do nothing: the kernel takes these pages before memory runs out, and before it kills a process. "
    "To lower RSS at "
    "once, the program can call madvise(MADV_DONTNEED) instead"
)


def _text(figures: LazilyFreed) -> str:
    return (
        "the program freed this with madvise(MADV_FREE). It stays resident until the kernel needs it. RSS without it "
        f"is {size_text(figures.rest)}"
    )


WORDS = Words(LazilyFreed, _text, lambda figures: ADVICE)
