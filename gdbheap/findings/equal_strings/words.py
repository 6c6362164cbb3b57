"""Texts of the finding ``equal-strings``: many strings with few values."""

from __future__ import annotations

from gdbheap.findings.equal_strings.rule import STR, EqualStrings
from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.words.finding_words import Words


def _text(figures: EqualStrings) -> str:
    return (
        f"{count_text(figures.copies)} of {counted(figures.objects, f'{figures.type} object')} are copies of "
        f"{counted(figures.values, 'value')}"
    )


def _advice(figures: EqualStrings) -> str:
    intern = ". Avoid sys.intern(x): this interpreter, CPython 3.12, never frees interned strings"
    what = "strings" if figures.type == STR else "bytes objects"
    return (
        f"keep one copy of each value where the {what} are created: x = seen.setdefault(x, x), with a dict named seen"
        f"{intern if figures.keeps_interned and figures.type == STR else ''}"
    )


WORDS = Words(EqualStrings, _text, _advice)
