"""Texts of the finding ``other-allocator``: another malloc than glibc's."""

from __future__ import annotations

from gdbheap.findings.other_allocator.rule import OtherMalloc
from gdbheap.report.words.finding_words import Words


def _text(figures: OtherMalloc) -> str:
    return f"{figures.title}: how much of it is free in {figures.name} is unknown"


def _advice(figures: OtherMalloc) -> str:
    unknown = f"ask {figures.name} itself: gdbheap does not know how to"
    return figures.advice or unknown


WORDS = Words(OtherMalloc, _text, _advice, lambda figures: figures.advice)
