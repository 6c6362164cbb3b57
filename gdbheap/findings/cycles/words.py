"""Texts of the finding ``cycles``: unreachable objects that only refer to one another."""

from __future__ import annotations

from gdbheap.findings.cycles.rule import Cycles
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words


def _text(figures: Cycles) -> str:
    return (
        f"{counted(figures.objects, 'object forms', 'objects form')} uncollected cycles, most of type "
        f"{figures.type} ({size_text(figures.largest)}). {_state(figures)}{_closing(figures)}"
    )


def _closing(figures: Cycles) -> str:
    groups = counted(figures.times, "group of objects", "groups of objects")
    return f". In {groups}, the cycle is {figures.closing}" if figures.closing else ""


def _state(figures: Cycles) -> str:
    if figures.enabled is None:
        return "The garbage collector has not run since the cycles were formed"
    if not figures.enabled:
        return "The garbage collector is switched off (gc.disable(), or a threshold of 0)"
    return (
        "The garbage collector is on, but has not examined their generation since then (the youngest generation has "
        f"{figures.count:,} of the {figures.threshold:,} objects that start it)"
    )


def _advice(figures: Cycles) -> str:
    is_off = figures.enabled is not None and not figures.enabled
    again = ", then call gc.enable(), or gc.collect() from time to time"
    keep = again if is_off else " after the code that leaves the cycles"
    frozen = ". If that frees nothing, call gc.unfreeze() first: gc.freeze() hides objects from the collector"
    return (
        f"call gc.collect(){keep}{frozen if figures.frozen else ''}. 'heap unreachable' lists the cycles. To avoid "
        "them, clear the named reference (del, None, weakref)"
    )


WORDS = Words(Cycles, _text, _advice)
