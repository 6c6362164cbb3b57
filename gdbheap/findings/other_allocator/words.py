"""other-allocator: another malloc than glibc's."""

from __future__ import annotations

from gdbheap.findings.other_allocator.rule import OtherMalloc
from gdbheap.report.words.finding_words import Words


def _text(figures: OtherMalloc) -> str:
    return f"{figures.title}: how much of it {figures.name} holds free is not known here"


def _advice(figures: OtherMalloc) -> str:
    unknown = f"there is no advice: nothing here knows how to ask {figures.name} how much of it is free"
    return figures.advice or unknown


WORDS = Words(OtherMalloc, _text, _advice, lambda figures: figures.advice)
