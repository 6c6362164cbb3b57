"""Texts of the finding ``large-chunks``: holes that large buffers left inside arenas."""

from __future__ import annotations

from gdbheap.findings.large_chunks.rule import LargeChunks
from gdbheap.findings.thresholds import OWN
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.text.thresholds import kept_because, mmapped_again
from gdbheap.report.words.finding_words import Words

REMEDY = "start it with MALLOC_MMAP_THRESHOLD_=131072"
OWN_REMEDY = "let it call mallopt(M_MMAP_THRESHOLD, 131072)"


def _text(figures: LargeChunks) -> str:
    left = counted(figures.holes, "hole")
    blocks = counted(figures.used_chunks, "block")
    return (
        f"freed buffers of 128 KiB or more left {left} next to {blocks} of that size ({size_text(figures.used)}). "
        f"glibc kept them in the heap because its mmap threshold {kept_because(figures.mmap_threshold, figures.origin)}"
    )


def _remedy(figures: LargeChunks) -> str:
    return OWN_REMEDY if figures.origin == OWN else REMEDY


WORDS = Words(LargeChunks, _text, lambda figures: mmapped_again(figures.origin), _remedy)
