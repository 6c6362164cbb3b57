"""Texts of the finding ``lost-references``: objects whose reference count is larger than the number of references."""

from __future__ import annotations

from gdbheap.findings.lost_references.rule import LostReferences
from gdbheap.report.text.numbers import counted
from gdbheap.report.words.finding_words import Words

SHOWN = 5
# Needed because Python's own allocator hands out small objects without a call of malloc.
WITH_MALLOC = " with PYTHONMALLOC=malloc"


def _text(figures: LostReferences) -> str:
    some = "" if figures.count == figures.objects else f"{figures.count:,} "
    verb, refer = ("is", "it refers") if figures.objects == 1 else ("are", "they refer")
    return (
        f"{counted(figures.objects, 'object')} ({some}of type {figures.type}) {verb} kept alive, with everything to "
        f"which {refer}, by references that no object holds: C code took these references and never released them "
        "(Py_DECREF), or "
        "keeps them where gdbheap does not look"
    )


def _advice(figures: LostReferences) -> str:
    shown = ", ".join(figures.libraries[:SHOWN]) + (" and others" if len(figures.libraries) > SHOWN else "")
    many = len(figures.libraries) > 1
    where = (
        f"look for the cause in the extension module{'s' * many} {shown}"
        if shown
        else "look for the cause in code that uses ctypes"
    )
    return (
        f"{where}, in a function that creates or gets objects of type {figures.type}. gc.collect() does not free them. "
        "'heap unreachable' lists them. To record which code allocates them, start the program"
        f"{WITH_MALLOC if figures.beside_malloc else ''} under 'gdbheap trace --stacks=1'"
    )


WORDS = Words(LostReferences, _text, _advice)
