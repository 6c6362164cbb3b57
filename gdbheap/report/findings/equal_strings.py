"""equal-strings: many strings with few values."""

from __future__ import annotations

from gdbheap.answers.findings.equal_strings import EqualStrings
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import count_text, counted


def _text(figures: EqualStrings) -> str:
    return (
        f"{count_text(figures.copies)} of {counted(figures.objects, 'str object')} are copies of "
        f"{counted(figures.values, 'value')}"
    )


def _advice(figures: EqualStrings) -> str:
    return "keep one copy of each value where the strings are made: sys.intern(x), or a dict: known.setdefault(x, x)"


WORDS = Words(EqualStrings, _text, _advice)
