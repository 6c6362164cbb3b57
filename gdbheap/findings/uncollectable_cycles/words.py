"""Texts of the finding ``uncollectable-cycles``: object cycles that the garbage collector does not free."""

from __future__ import annotations

from gdbheap.findings.uncollectable_cycles.rule import UncollectableCycles
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

CLEAR = "clear the named reference (del, None, weakref)"
CLOSE = f"call close() on the cycle's object from the C extension when it is no longer used, or {CLEAR}"
ADVICE = {
    "hidden": f"{CLOSE}: gc.collect() cannot free these objects, because C code that the collector does not see "
    "refers to them",
    "likely": f"call gc.collect(); if that frees nothing, C code hides a reference from the collector: then {CLOSE}",
    "untracked": f"{CLEAR}: gc.collect() cannot free these objects, because the collector does not see what {{0}} "
    "refers to",
    "finalizer": f"remove __del__ of {{0}}, or {CLEAR}: gc.collect() does not free a cycle of objects that have "
    "__del__",
}


def _text(figures: UncollectableCycles) -> str:
    groups = counted(figures.times, "group of objects", "groups of objects")
    return (
        f"cycles keep {counted(figures.objects, 'object')} alive, most of type {figures.type} "
        f"({size_text(figures.largest)}). In {groups}, the cycle is {figures.closing}"
    )


def _advice(figures: UncollectableCycles) -> str:
    # The kind may come from a snapshot file, which may have any text.
    return ADVICE.get(figures.kind, CLEAR).format(figures.culprit)


WORDS = Words(UncollectableCycles, _text, _advice)
