"""Texts of the finding ``garbage-list``: objects in gc.garbage."""

from __future__ import annotations

from gdbheap.findings.garbage_list.rule import GarbageList
from gdbheap.report.text.numbers import counted
from gdbheap.report.words.finding_words import Words

SAVED = (
    "call gc.set_debug(0) and gc.garbage.clear(), then gc.collect(): gc.DEBUG_SAVEALL puts every object there that the "
    "collector would free"
)
OF_FINALIZERS = (
    "break each cycle (for x in gc.garbage: x.__dict__.clear()), then del gc.garbage[:]. Avoid __del__() in classes of "
    "cycles, or use weakref for one reference: Python 3.4 and later free such cycles. gc.DEBUG_SAVEALL also fills the "
    "list"
)


def _text(figures: GarbageList) -> str:
    objects = counted(figures.objects, "object")
    return (
        f"gc.garbage keeps {objects}, most of type {figures.type}: the garbage collector found them unreachable, but "
        "did not free them"
    )


def _advice(figures: GarbageList) -> str:
    return OF_FINALIZERS if figures.keeps_finalizers else SAVED


WORDS = Words(GarbageList, _text, _advice)
