"""jemalloc-unused: extents of jemalloc in which nothing is in use."""

from __future__ import annotations

from gdbheap.answers.findings.jemalloc_unused import JemallocUnused
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import counted, size_text

ADVICE = (
    'call mallctl("arena.4096.purge", NULL, NULL, NULL, 0) in the program (in redis: MEMORY PURGE), or start it with '
    "MALLOC_CONF=background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0, with the prefix of its build: jemalloc "
    "gives such pages back over dirty_decay_ms (10,000 unless set otherwise), and without a thread of its own for "
    "that only while it is being called"
)


def _text(figures: JemallocUnused) -> str:
    muzzy = f", of which the kernel may take {size_text(figures.muzzy)} when memory is short" if figures.muzzy else ""
    return (
        f"jemalloc keeps {counted(figures.stretches, 'stretch', 'stretches')} of memory in which no block is in use, "
        f"and which it has not given back{muzzy}"
    )


WORDS = Words(JemallocUnused, _text, lambda figures: ADVICE)
