"""after-fork: pages that processes share after fork()."""

from __future__ import annotations

from gdbheap.findings.after_fork.rule import AfterFork
from gdbheap.report.text.numbers import size_text
from gdbheap.report.words.finding_words import Words

ADVICE = "add up PSS, not RSS. What is shared stays so until one of them writes to the page"
IN_PYTHON = (
    ". In Python each use of an object writes to its reference count, and the collector writes beside objects: "
    "gc.freeze() before fork() stops the collector alone. '--children' says which of the two copied pages"
)


def _text(figures: AfterFork) -> str:
    return (
        f"of {size_text(figures.anonymous)} of private memory, {size_text(figures.pss)} are this process's share "
        "(Pss_Anon): the rest is counted again in the RSS of the processes that it was forked from, or that it forked"
    )


def _advice(figures: AfterFork) -> str:
    return ADVICE + IN_PYTHON * figures.python


WORDS = Words(AfterFork, _text, _advice)
