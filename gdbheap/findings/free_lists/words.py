"""free-lists: objects that the interpreter keeps for reuse."""

from __future__ import annotations

from gdbheap.findings.free_lists.rule import FreeLists
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

ADVICE = (
    "call gc.collect() after the load that left them: a collection of the oldest generation, and no other, clears the "
    "free lists ('heap pools' says in which sizes blocks come free; an arena goes back only as a whole)"
)
OF_SLABS = (
    "call gc.collect(), which frees these blocks, then malloc_trim(0), which gives their pages back: "
    "ctypes.CDLL(None).malloc_trim(0), or 'heap trim --yes'"
)


def _text(figures: FreeLists) -> str:
    slabs = (
        f"{counted(figures.slabs, 'block')} of malloc ({size_text(figures.slab_bytes)}) in which Python 2 kept int and "
        "float objects, and none is left"
    )
    kept = counted(
        figures.objects, "object on the interpreter's free lists is", "objects on the interpreter's free lists are"
    )
    objects = (
        f"{kept} kept for reuse, the most of type {figures.type} ({figures.most:,}, {size_text(figures.most_bytes)})"
    )
    if figures.slab_bytes > figures.size:
        return f"{slabs}: the interpreter keeps them for the next numbers"
    return f"{objects}; so are {slabs}" if figures.slabs else objects


def _advice(figures: FreeLists) -> str:
    return OF_SLABS if figures.slab_bytes > figures.size else ADVICE


WORDS = Words(FreeLists, _text, _advice)
