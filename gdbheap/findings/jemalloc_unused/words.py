"""Texts of the finding ``jemalloc-unused``: extents of jemalloc without a block in use."""

from __future__ import annotations

from gdbheap.findings.jemalloc_unused.rule import JemallocUnused
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

ARROW = (
    "wait: by default Arrow's own jemalloc returns free pages within two seconds. If it does not, check whether "
    "{variable} is set, or start the program with "
    "{variable}=background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0. release_unused() of its pool returns "
    "nothing (pyarrow 26)"
)
ADVICE = (
    'call {call}("arena.4096.purge", NULL, NULL, NULL, 0) in the program (4096: all arenas){purge}, or start it with '
    "{variable}=background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0{unknown}. jemalloc returns free pages "
    "within dirty_decay_ms (default: 10,000 ms); without a background thread, it does so only while the program "
    "calls it"
)
PLAIN = "MALLOC_CONF"


def _text(figures: JemallocUnused) -> str:
    muzzy = f"; the kernel may take {size_text(figures.muzzy)} of them when memory is short" if figures.muzzy else ""
    whose = f" of {' and '.join(figures.owners)}" if figures.several and figures.owners else ""
    extents = counted(figures.stretches, "free extent")
    return f"jemalloc{whose} keeps {extents}, which it has not returned yet{muzzy}"


def _advice(figures: JemallocUnused) -> str:
    """Return the advice to make jemalloc return free pages.

    The names of jemalloc's functions and of its variable may begin with a prefix that the build chose. If the prefix is
    known, the advice uses it.
    """
    variable = figures.variable if (figures.variable or "").isidentifier() else None
    if _is_arrows(figures.owners):
        return ARROW.format(variable=variable or PLAIN)
    prefix = (variable or PLAIN)[: -len(PLAIN)]
    return ADVICE.format(
        call=f"{prefix.lower()}mallctl",
        purge=f", or '{figures.server}-cli MEMORY PURGE'" if (figures.server or "").isidentifier() else "",
        variable=variable or PLAIN,
        unknown="" if variable else " (if jemalloc was built with a prefix, such as je_, put it before the name)",
    )


def _is_arrows(owners: list[str]) -> bool:
    """Return whether most of the memory belongs to Arrow's jemalloc. Only Arrow can call the functions of this
    jemalloc.

    Arrow's own ReleaseUnused() has no effect: it calls "arena.MALLCTL_ARENAS_ALL.purge", which does not exist."""
    return any(owner.startswith("libarrow") for owner in owners[:1])


WORDS = Words(JemallocUnused, _text, _advice)
