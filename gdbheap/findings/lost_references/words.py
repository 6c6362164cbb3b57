"""lost-references: objects that have more references than exist."""

from __future__ import annotations

from gdbheap.findings.lost_references.rule import LostReferences
from gdbheap.report.text.numbers import counted
from gdbheap.report.words.finding_words import Words

SHOWN = 5


def _text(figures: LostReferences) -> str:
    some = "" if figures.count == figures.objects else f"{figures.count:,} of them "
    objects = f"{counted(figures.objects, 'object')} ({some}of type {figures.type})"
    return (
        f"{objects} and what hangs on them have more references counted than were found: C code took some and never "
        "gave them back (Py_DECREF), or keeps them where nobody looks"
    )


def _advice(figures: LostReferences) -> str:
    shown = ", ".join(figures.libraries[:SHOWN]) + (" and others" if len(figures.libraries) > SHOWN else "")
    where = f"look for it in an extension module ({shown})" if shown else "look for it in code that uses ctypes"
    return (
        f"gc.collect() does not free them; {where}: one that makes or is given objects of type {figures.type}; "
        "'heap unreachable' lists them, 'gdbheap trace --stacks=1' from the program's start records who makes them"
    )


WORDS = Words(LostReferences, _text, _advice)
