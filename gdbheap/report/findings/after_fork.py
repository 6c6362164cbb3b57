"""after-fork: pages that processes share after fork()."""

from __future__ import annotations

from gdbheap.answers.findings.after_fork import AfterFork
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import size_text

ADVICE = (
    "add up PSS, not RSS. What is shared stays so until one of them writes to the page: in Python, gc.freeze() "
    "before fork() keeps the collector from writing to all objects"
)


def _text(figures: AfterFork) -> str:
    return (
        f"of {size_text(figures.anonymous)} of private memory, {size_text(figures.pss)} are this process's share "
        "(Pss_Anon): the rest is counted again in the RSS of the processes that it was forked from, or that it forked"
    )


WORDS = Words(AfterFork, _text, lambda figures: ADVICE)
