"""Texts of the finding ``locked``: free memory that mlock() keeps."""

from __future__ import annotations

from gdbheap.findings.locked.rule import Locked
from gdbheap.report.text.numbers import size_text
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "lock only memory that must not be swapped out: call munlock() for all other memory, or munlockall(), then "
    "malloc_trim(0) ('heap trim --yes')"
)


def _text(figures: Locked) -> str:
    return (
        "mlock() keeps pages that the program freed: malloc_trim() cannot return them. The process locked "
        f"{size_text(figures.locked)} in total"
    )


WORDS = Words(Locked, _text, lambda figures: ADVICE)
