"""Texts of the finding ``leak-like``: one container that keeps nearly all objects of a type."""

from __future__ import annotations

from dataclasses import replace

from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.findings.holder.words import remedy_of
from gdbheap.findings.leak_like.rule import LeakLike
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words
from gdbheap.report.words.main_holders import described


def _text(figures: LeakLike) -> str:
    unknown = "; its age is unknown" * (not figures.age_is_known)
    return (
        f"{_named(figures)} keeps {figures.kept:,} of {counted(figures.count, 'object')} of type {figures.type}, and "
        f"{100 * figures.bytes // max(figures.used, 1)} % of the {size_text(figures.used)} in use. It is a leak if the "
        f"container was meant to stay small{unknown}. A later 'heap diff' shows whether it grows"
    )


def _named(figures: LeakLike) -> str:
    """Return the name of the container as the first page prints it."""
    if figures.holder is not None:
        return f"{figures.holder.path} ({described(replace(figures.holder, parts=[]))})"
    path = f" ({source_path(figures.path)})" if figures.path else ""
    return f"one {figures.container} at {figures.address:#x}{path}"


def _advice(figures: LeakLike) -> str:
    reached = "" if figures.path else f"; 'heap why {figures.address:#x}' shows what keeps it"
    remedy = None if figures.holder is None else remedy_of(figures.holder)
    return remedy or f"limit its size, or drop data that is no longer used{reached}"


WORDS = Words(LeakLike, _text, _advice)
