"""Texts of the finding ``other-allocator``: a malloc other than glibc's."""

from __future__ import annotations

from gdbheap.findings.other_allocator.rule import OtherMalloc
from gdbheap.report.words.finding_words import Words


def _text(figures: OtherMalloc) -> str:
    return f"{figures.title}: it is unknown how much of this is free in {figures.name}"


def _advice(figures: OtherMalloc) -> str:
    unknown = f"ask {figures.name} itself for its figures: gdbheap cannot read them"
    return figures.advice or unknown


WORDS = Words(OtherMalloc, _text, _advice, lambda figures: figures.advice)
