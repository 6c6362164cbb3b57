"""Texts of the finding ``cached-*``: free blocks in threads' caches."""

from __future__ import annotations

from gdbheap.findings.cached.rule import Cached
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

HOW = {
    "jemalloc": (
        'call mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) in idle threads, or start the program with '
        "{setting}, so that blocks above 4 KiB are not cached (separate several settings with commas)"
    ),
    "tcmalloc": (
        "call MallocExtension_MarkThreadIdle() in idle threads, or start the program with {setting} (default: 32 "
        "MiB; each thread may always keep 512 KiB)"
    ),
}
REST = (
    ". Any thread can then use the blocks, and empty spans or slabs go back to the kernel. Busy threads allocate more "
    "slowly"
)


def _text(figures: Cached) -> str:
    shared = f", {size_text(figures.shared)} of these bytes in caches that threads share" if figures.shared else ""
    most = f" (most in {figures.owner})" if figures.owner else ""
    return (
        f"{counted(figures.blocks, 'free block')} of {figures.title}{most} are in {counted(figures.caches, 'cache')} "
        f"of threads{shared}"
    )


def _advice(figures: Cached) -> str:
    return HOW.get(figures.title, "start the program with {setting}").format(setting=figures.setting) + REST


WORDS = Words(Cached, _text, _advice)
