"""jemalloc-unused: extents of jemalloc in which nothing is in use."""

from __future__ import annotations

from gdbheap.findings.jemalloc_unused.rule import JemallocUnused
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

ARROW = (
    "wait: unless it was told otherwise, Arrow's own jemalloc gives such pages back by itself in two seconds, so look "
    "whether {variable} is set, or start the program with "
    "{variable}=background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0. It has no call for that: "
    "release_unused() of its pool gives back nothing (of pyarrow 26)"
)
ADVICE = (
    'call {call}("arena.4096.purge", NULL, NULL, NULL, 0) in the program{purge}, or start it with '
    "{variable}=background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0{unknown}: jemalloc "
    "gives such pages back over dirty_decay_ms (10,000 unless set otherwise), and without a thread of its own for "
    "that only while it is being called"
)
PLAIN = "MALLOC_CONF"


def _text(figures: JemallocUnused) -> str:
    muzzy = f", of which the kernel may take {size_text(figures.muzzy)} when memory is short" if figures.muzzy else ""
    whose = f" of {' and '.join(figures.owners)}" if figures.several and figures.owners else ""
    return (
        f"jemalloc{whose} keeps {counted(figures.stretches, 'stretch', 'stretches')} of memory in which no block is in "
        f"use, and which it has not given back{muzzy}"
    )


def _advice(figures: JemallocUnused) -> str:
    """The calls and the variable have the prefix of the build."""
    if _is_arrows(figures.owners):
        return ARROW.format(variable=figures.variable or PLAIN)
    prefix = (figures.variable or PLAIN)[: -len(PLAIN)]
    return ADVICE.format(
        call=f"{prefix.lower()}mallctl",
        purge=f", or '{figures.server}-cli MEMORY PURGE'" if figures.server else "",
        variable=figures.variable or PLAIN,
        unknown="" if figures.variable else ", with the prefix of its build",
    )


def _is_arrows(owners: list[str]) -> bool:
    """Whether most of it is of Arrow's library, whose functions of jemalloc nobody else can call; its ReleaseUnused()
    asks for "arena.MALLCTL_ARENAS_ALL.purge", which there is not."""
    return any(owner.startswith("libarrow") for owner in owners[:1])


WORDS = Words(JemallocUnused, _text, _advice)
