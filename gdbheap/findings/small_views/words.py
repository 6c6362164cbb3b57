"""Texts of the finding ``small-views``: large buffers that only small views keep alive."""

from __future__ import annotations

from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.findings.small_views.rule import KeptByViews
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

COPIES = {
    "numpy.": "x[:10].copy() for an array",
    "memoryview": "bytes(x) for a memoryview",
    "pyarrow.": "x.take(pyarrow.array(range(len(x)))) for an Arrow array",
    "polars.": "x.gather(list(range(len(x)))) for a polars Series",
    "torch.": "x.clone() for a tensor",
}


def _text(figures: KeptByViews) -> str:
    parts = ", ".join(
        f"{counted(row.count, 'view')} ({row.type}) of {size_text(row.shown)} "
        f"{'keeps' if row.count == 1 else 'keep'} {size_text(row.kept)} alive"
        for row in figures.types
    )
    return f"{parts}; nothing else refers to this memory; {_example(figures)} keeps the most"


def _example(figures: KeptByViews) -> str:
    return source_path(figures.path) if figures.path else f"the view at {figures.address:#x}"


def _advice(figures: KeptByViews) -> str:
    known = [words for start, words in COPIES.items() if any(row.type.startswith(start) for row in figures.types)]
    copies = ", ".join(known) or "x.copy()"
    return f"keep a copy of the viewed part instead of the view: {copies}; a buffer is freed with its last view"


WORDS = Words(KeptByViews, _text, _advice)
