"""Texts of the finding ``mimalloc-empty``: pages and slices of mimalloc without a block in use."""

from __future__ import annotations

from gdbheap.findings.mimalloc_empty.rule import MimallocEmpty
from gdbheap.report.text.numbers import counted
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "call mi_collect(true) in each of the program's threads after each burst of work (for Arrow's pool: "
    "pyarrow.default_memory_pool().release_unused()). While the program allocates, mimalloc itself returns empty "
    "ranges after {setting} milliseconds (0: at once, negative: never)"
)


def _text(figures: MimallocEmpty) -> str:
    part = "; mimalloc before 2.1.7 returns only a part, or nothing if it was built with MI_SECURE"
    early = "" if figures.all_goes else part
    whose = f" of {' and '.join(figures.owners)}" if figures.owners else ""
    return (
        f"mimalloc{whose} keeps {counted(figures.stretches, 'free range')} without a block in use. mimalloc returns "
        f"a range some time after it became empty, and only while the program calls mimalloc{early}"
    )


WORDS = Words(MimallocEmpty, _text, lambda figures: ADVICE.format(setting=figures.setting))
