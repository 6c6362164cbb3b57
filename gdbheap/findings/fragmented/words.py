"""Texts of the finding ``fragmented-*``: jemalloc slabs, tcmalloc spans or mimalloc pages that blocks could share."""

from __future__ import annotations

from gdbheap.findings.fragmented.rule import Fragmented
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

SERVER = (
    "run '{0}-cli CONFIG SET activedefrag yes', which moves the blocks: this {0} has its own jemalloc. MEMORY PURGE "
    "returns none of this memory"
)
OWN = (
    "copy long-lived data into new blocks before any old block is freed (build the container anew), then release the "
    "empty {kind} ({call}). Or allocate long-lived data before the work that filled these {kind}. {pins}"
    "'heap sizes' lists all sizes"
)
PINS = "'heap pins' lists the blocks that pin the most memory, "
CALLS = {
    "jemalloc": 'mallctl("arena.4096.purge")',
    "tcmalloc": "MallocExtension_ReleaseFreeMemory()",
    "mimalloc": "mi_collect(true)",
}


def _text(figures: Fragmented) -> str:
    return (
        f"{figures.groups:,} of {figures.all_groups:,} {figures.kind} of {figures.title} would be empty if their "
        f"{counted(figures.blocks, 'block')} were in free slots of the other {figures.kind} (all {figures.kind} "
        f"together have {size_text(figures.free)} of free slots). The "
        f"blocks have {counted(figures.sizes, 'size')}; the blocks of {figures.size:,} bytes keep the most memory "
        f"({size_text(figures.of_size)})"
    )


def _advice(figures: Fragmented) -> str:
    if figures.server:
        return SERVER.format(figures.server)
    call = CALLS.get(figures.title, "with the allocator's own call")
    return OWN.format(call=call, kind=figures.kind, pins=PINS if figures.pins else "")


WORDS = Words(Fragmented, _text, _advice)
