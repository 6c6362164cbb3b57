"""mimalloc-empty: pages and slices of mimalloc in which nothing is in use."""

from __future__ import annotations

from gdbheap.findings.mimalloc_empty.rule import MimallocEmpty
from gdbheap.report.text.numbers import counted
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "call mi_collect(true) in the program, in each of its threads, after the load that needed this (of Arrow's pool "
    "pyarrow.default_memory_pool().release_unused()); a program that goes on allocating gives it back itself once "
    "{setting} (milliseconds) are over, unless that is negative; 0: at once"
)


def _text(figures: MimallocEmpty) -> str:
    early = "" if figures.all_goes else "; before 2.1.7 it gives back a part, or nothing if built with MI_SECURE"
    whose = f" of {' and '.join(figures.owners)}" if figures.owners else ""
    return (
        f"mimalloc{whose} keeps {counted(figures.stretches, 'stretch', 'stretches')} of memory in which no block is in "
        f"use: it gives them back some time after they became empty, and only when it is called again{early}"
    )


WORDS = Words(MimallocEmpty, _text, lambda figures: ADVICE.format(setting=figures.setting))
