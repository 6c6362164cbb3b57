"""jemalloc-arenas: arenas of jemalloc with slabs of their own that are not full."""

from __future__ import annotations

from gdbheap.findings.jemalloc_arenas.rule import JemallocArenas
from gdbheap.report.words.finding_words import Words


def _text(figures: JemallocArenas) -> str:
    whose = f" of {figures.owner}" if figures.owner else ""
    return (
        f"{figures.arenas:,} arenas of jemalloc{whose} have {figures.slabs:,} slabs: each has its own for every size, "
        f"and {figures.fewer:,} would not be needed if the blocks had been in {figures.wanted:,}"
    )


def _advice(figures: JemallocArenas) -> str:
    return (
        f"start the program with {figures.setting} (unless set otherwise there may be four for each processor), or "
        "percpu_arena:percpu for one each: threads that allocate at the same time then wait for each other more "
        "often. Several settings of one variable have commas between them"
    )


WORDS = Words(JemallocArenas, _text, _advice)
