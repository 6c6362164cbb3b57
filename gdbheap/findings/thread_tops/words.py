"""Texts of the finding ``thread-tops``: free memory at the ends of threads' arenas."""

from __future__ import annotations

from gdbheap.findings.thread_tops.rule import LargestTop, ThreadTops
from gdbheap.findings.thresholds import DEFAULT_THRESHOLD, OWN
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.text.thresholds import OWN_CALL, threshold_text
from gdbheap.report.words.finding_words import Words

BY_THRESHOLD = (
    "start the program with MALLOC_TRIM_THRESHOLD_=131072: every arena then returns the free memory at its end"
)
BY_ARENAS = (
    "try fewer arenas, or another allocator, on a recording ('gdbheap trace', then 'gdbheap replay --what-if'): each "
    "arena keeps its own peak, but with fewer arenas threads wait for each other"
)


def _text(figures: ThreadTops) -> str:
    beyond = f" beyond {size_text(DEFAULT_THRESHOLD)} each" if figures.by_threshold else ""
    return (
        f"{counted(figures.keeping, 'arena')} of threads keep {size_text(figures.kept)} of free resident pages at "
        f"their ends{beyond}, which malloc_trim() does not reach. {_largest(figures.largest)}. free() returns the "
        "memory at an arena's end only if this is at least trim_threshold, which is "
        f"{threshold_text(figures.trim_threshold, figures.origin)}; {_limit(figures.arena_max)}"
    )


def _largest(top: LargestTop) -> str:
    whose = "no thread now" if top.tid is None else f"thread {top.tid}, {top.thread or 'without a name'}"
    return f"Arena {top.arena} ({whose}) keeps the most, {size_text(top.bytes)}"


def _limit(arena_max: int) -> str:
    return f"at most {counted(arena_max, 'arena')} may be made" if arena_max else "arena_max is not set"


def _advice(figures: ThreadTops) -> str:
    if not figures.by_threshold:
        return BY_ARENAS
    return OWN_CALL.format("M_TRIM_THRESHOLD") if figures.origin == OWN else BY_THRESHOLD


WORDS = Words(ThreadTops, _text, _advice, _advice)
