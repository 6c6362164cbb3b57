"""Texts of the finding ``jemalloc-arenas``: jemalloc arenas with their own partly filled slabs."""

from __future__ import annotations

from gdbheap.findings.jemalloc_arenas.rule import JemallocArenas
from gdbheap.report.text.numbers import counted
from gdbheap.report.words.finding_words import Words


def _text(figures: JemallocArenas) -> str:
    whose = f" of {figures.owner}" if figures.owner else ""
    return (
        f"{figures.arenas:,} arenas of jemalloc{whose} have {figures.slabs:,} slabs, because each arena has its "
        f"own slabs for every size. {counted(figures.wanted, 'arena')} would need {figures.fewer:,} fewer slabs"
    )


def _advice(figures: JemallocArenas) -> str:
    return (
        f"start the program with {figures.setting} (default: four arenas for each processor), or with "
        "percpu_arena:percpu for one arena for each processor. Threads that allocate at the same time then wait for "
        "each other more often. Separate several settings with commas"
    )


WORDS = Words(JemallocArenas, _text, _advice)
