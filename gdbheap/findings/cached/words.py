"""cached-*: free blocks in threads' caches."""

from __future__ import annotations

from gdbheap.findings.cached.rule import Cached
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

HOW = {
    "jemalloc": (
        'call mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) in threads that rest, or start the program with '
        "{setting}, so that blocks of more than 4 KiB are not cached (several settings of one variable have commas "
        "between them)"
    ),
    "tcmalloc": (
        "call MallocExtension_MarkThreadIdle() in threads that rest, or start the program with {setting} (32 MiB "
        "unless set otherwise; a thread may have 512 KiB however many there are, and more for a while)"
    ),
}
REST = (
    ": any thread can have the blocks then, and the memory goes back as far as spans or slabs are empty; that costs "
    "time where threads are busy"
)


def _text(figures: Cached) -> str:
    shared = f", {size_text(figures.shared)} of that in caches which threads share" if figures.shared else ""
    most = f" (most in {figures.owner})" if figures.owner else ""
    return (
        f"{counted(figures.blocks, 'free block')} of {figures.title}{most} wait in {counted(figures.caches, 'cache')} "
        f"of threads{shared}"
    )


def _advice(figures: Cached) -> str:
    return HOW.get(figures.title, "start the program with {setting}").format(setting=figures.setting) + REST


WORDS = Words(Cached, _text, _advice)
