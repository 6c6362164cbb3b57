"""Texts of the finding ``free-lists``: objects that the interpreter keeps for reuse."""

from __future__ import annotations

from gdbheap.findings.free_lists.rule import FreeLists
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "call gc.collect() after the work that left these objects: only a collection of the oldest generation clears the "
    "free "
    "lists. 'heap pools' lists the sizes of the blocks. pymalloc returns an arena only when it is empty"
)
OF_SLABS = (
    "call gc.collect(), which frees these blocks, then malloc_trim(0), which returns their pages: "
    "ctypes.CDLL(None).malloc_trim(0), or 'heap trim --yes'"
)


def _text(figures: FreeLists) -> str:
    held = counted(figures.slabs, "block of malloc holds", "blocks of malloc hold")
    slabs = f"{held} no int or float of Python 2 any more ({size_text(figures.slab_bytes)})"
    if figures.slab_bytes > figures.size:
        return f"{slabs}. The interpreter keeps this memory for new int and float objects"
    objects = (
        f"the interpreter keeps {counted(figures.objects, 'object')} on its free lists for reuse, most of type "
        f"{figures.type} ({figures.most:,}, {size_text(figures.most_bytes)})"
    )
    return f"{objects}; {slabs}" if figures.slabs else objects


def _advice(figures: FreeLists) -> str:
    return OF_SLABS if figures.slab_bytes > figures.size else ADVICE


WORDS = Words(FreeLists, _text, _advice)
