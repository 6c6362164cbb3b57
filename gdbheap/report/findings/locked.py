"""locked: free memory that mlock() keeps."""

from __future__ import annotations

from gdbheap.answers.findings.locked import Locked
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import size_text

ADVICE = (
    "lock only what must not be swapped out: call munlock() for the rest, or munlockall(), and then malloc_trim(0) "
    "('heap trim --yes')"
)


def _text(figures: Locked) -> str:
    return (
        "the program freed these pages, and mlock() keeps them: malloc_trim() gives none of them back. The process has "
        f"{size_text(figures.locked)} locked"
    )


WORDS = Words(Locked, _text, lambda figures: ADVICE)
