"""lost-references: objects that have more references than exist."""

from __future__ import annotations

from gdbheap.findings.lost_references.rule import LostReferences
from gdbheap.report.text.numbers import counted
from gdbheap.report.words.finding_words import Words

SHOWN = 5


def _text(figures: LostReferences) -> str:
    return (
        f"{counted(figures.objects, 'object')} with what hangs on them can never be freed: more references are counted "
        f"than exist, so that C code took some and never gave them back (Py_DECREF); {figures.count:,} of them are of "
        f"type {figures.type}"
    )


def _advice(figures: LostReferences) -> str:
    shown = ", ".join(figures.libraries[:SHOWN]) + (" and others" if len(figures.libraries) > SHOWN else "")
    where = f"look for it in an extension module ({shown})" if shown else "look for it in code that uses ctypes"
    return (
        f"gc.collect() does not free them; {where}: one that makes or is given objects of type {figures.type}; "
        "'heap unreachable' lists them, 'gdbheap trace --stacks=1' from the program's start records who makes them"
    )


WORDS = Words(LostReferences, _text, _advice)
