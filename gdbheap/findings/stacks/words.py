"""Texts of the finding ``stacks``: the stacks of many threads."""

from __future__ import annotations

from gdbheap.findings.stacks.rule import ThreadStacks
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

ADVICE = "end threads that only wait, or start fewer: a stack's pages are returned when its thread ends"


def _text(figures: ThreadStacks) -> str:
    return (
        f"the stacks of {counted(figures.threads, 'thread')} stay resident to their greatest depth. The largest, of "
        f"thread {figures.tid} ({figures.name or 'without a name'}), has {size_text(figures.largest)}"
    )


WORDS = Words(ThreadStacks, _text, lambda figures: ADVICE)
