"""Texts of the finding ``growing-buffers``: copies that realloc() left in holes when it moved buffers."""

from __future__ import annotations

from gdbheap.findings.growing_buffers.rule import GrowingBuffers
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.text.thresholds import mmapped_again, threshold_text
from gdbheap.report.words.finding_words import Words

ADVICE = "allocate a growing buffer once at its final size, or"


def _text(figures: GrowingBuffers) -> str:
    what = "a buffer" if figures.what is None else str(figures.what)
    lengths = f"{size_text(figures.shortest)} to {size_text(figures.longest)}"
    others = f" and {counted(figures.buffers - 1, 'other buffer')}" if figures.buffers > 1 else ""
    return (
        f"holes contain {counted(figures.copies, 'copy', 'copies')} of the beginning of {what} at "
        f"{figures.address:#x} ({size_text(figures.size)}; its copies have {lengths}){others}. realloc() leaves such "
        "copies when it moves a growing buffer. It leaves none for a buffer of at least mmap_threshold, which is "
        f"{threshold_text(figures.mmap_threshold, figures.origin)}: it moves the pages of such a buffer"
    )


WORDS = Words(GrowingBuffers, _text, lambda figures: f"{ADVICE} {mmapped_again(figures.origin)}")
