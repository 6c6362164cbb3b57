"""leak-like: one container that keeps nearly all objects of a type."""

from __future__ import annotations

from gdbheap.findings.leak_like.rule import LeakLike
from gdbheap.report.text.numbers import counted
from gdbheap.report.words.finding_words import Words


def _text(figures: LeakLike) -> str:
    path = f" ({figures.path})" if figures.path else ""
    unknown = ", and nothing tells when it was filled"
    return (
        f"one {figures.container} at {figures.address:#x}{path} keeps {figures.kept:,} of "
        f"{counted(figures.count, 'object')} of type {figures.type}, and "
        f"{100 * figures.bytes // max(figures.used, 1)} % of all bytes in use: a leak, if it was meant to stay small"
        f"{'' if figures.age_is_known else unknown}. A second look tells whether it grows ('heap diff')"
    )


def _advice(figures: LeakLike) -> str:
    reached = "" if figures.path else f"; 'heap why {figures.address:#x}' says how it is reached"
    return f"bound it, or drop from it what nobody needs any more{reached}"


WORDS = Words(LeakLike, _text, _advice)
