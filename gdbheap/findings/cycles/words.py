"""cycles: objects that only refer to one another."""

from __future__ import annotations

from gdbheap.findings.cycles.rule import Cycles
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words


def _text(figures: Cycles) -> str:
    return (
        f"{counted(figures.objects, 'object is', 'objects are')} reached by nothing but one another, the most of type "
        f"{figures.type} ({size_text(figures.largest)}): {_state(figures)}{_closing(figures)}"
    )


def _closing(figures: Cycles) -> str:
    return f"; {figures.closing}, {counted(figures.times, 'time')}" if figures.closing else ""


def _state(figures: Cycles) -> str:
    if figures.enabled is None:
        return "the garbage collector has not run since they went"
    if not figures.enabled:
        return "the garbage collector is switched off (gc.disable(), or a threshold of 0)"
    return (
        f"the garbage collector is on, and has not looked at their generation since ({figures.count:,} of "
        f"{figures.threshold:,} to its next run over the youngest one)"
    )


def _advice(figures: Cycles) -> str:
    is_off = figures.enabled is not None and not figures.enabled
    keep = ", and gc.enable() or a call from time to time" if is_off else " after what left them"
    frozen = ", gc.unfreeze() before it where that frees nothing: some objects are out of its reach (gc.freeze())"
    return (
        f"call gc.collect(){keep}{frozen if figures.frozen else ''}; 'heap unreachable' "
        "lists what they are; where the named reference is cleared (del, None, weakref) there is no cycle"
    )


WORDS = Words(Cycles, _text, _advice)
