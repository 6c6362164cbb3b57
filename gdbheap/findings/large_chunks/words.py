"""large-chunks: holes that large buffers left inside arenas."""

from __future__ import annotations

from gdbheap.findings.large_chunks.rule import LargeChunks
from gdbheap.findings.thresholds import OWN
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.text.thresholds import mmapped_again, threshold_text
from gdbheap.report.words.finding_words import Words

REMEDY = "start it with MALLOC_MMAP_THRESHOLD_=131072"
OWN_REMEDY = "let it call mallopt(M_MMAP_THRESHOLD, 131072)"


def _text(figures: LargeChunks) -> str:
    return (
        f"{counted(figures.holes, 'hole')} of 128 KiB or more {'lies' if figures.holes == 1 else 'lie'} next to "
        f"{counted(figures.used_chunks, 'used chunk')} of that size ({size_text(figures.used)}): malloc gives a buffer "
        "a mapping of its own, which free() gives back at once, only from mmap_threshold on, which is "
        f"{threshold_text(figures.mmap_threshold, figures.origin)}"
    )


def _remedy(figures: LargeChunks) -> str:
    return OWN_REMEDY if figures.origin == OWN else REMEDY


WORDS = Words(LargeChunks, _text, lambda figures: mmapped_again(figures.origin), _remedy)
