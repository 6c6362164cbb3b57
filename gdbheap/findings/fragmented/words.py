"""fragmented-*: slabs of jemalloc, spans of tcmalloc, or pages of mimalloc, whose blocks would fit into fewer."""

from __future__ import annotations

from gdbheap.findings.fragmented.rule import Fragmented
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

SERVER = (
    "'{0}-cli CONFIG SET activedefrag yes' moves them: this {0} has its own jemalloc. MEMORY PURGE gives back nothing "
    "of this"
)
OWN = (
    "copy what lives long into new blocks, all of it before any of the old blocks is freed (a container is made anew), "
    "then give back what is empty ({call}); or make what lives long before the load that filled these {kind}. 'heap "
    "pins' names blocks that keep much, 'heap sizes' has all sizes"
)
CALLS = {
    "jemalloc": 'mallctl("arena.4096.purge")',
    "tcmalloc": "MallocExtension_ReleaseFreeMemory()",
    "mimalloc": "mi_collect(true)",
}


def _text(figures: Fragmented) -> str:
    return (
        f"{figures.groups:,} of {figures.all_groups:,} {figures.kind} of {figures.title} would go if their "
        f"{counted(figures.blocks, 'block')} lay in the free places of the others, {size_text(figures.free)} in all: "
        f"blocks of {counted(figures.sizes, 'size')}, of which {figures.size:,} bytes keeps the most "
        f"({size_text(figures.of_size)})"
    )


def _advice(figures: Fragmented) -> str:
    if figures.server:
        return SERVER.format(figures.server)
    return OWN.format(call=CALLS.get(figures.title, "by the call that its allocator has for that"), kind=figures.kind)


WORDS = Words(Fragmented, _text, _advice)
