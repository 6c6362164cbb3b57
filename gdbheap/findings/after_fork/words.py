"""Texts of the finding ``after-fork``: pages that processes share after fork()."""

from __future__ import annotations

from gdbheap.findings.after_fork.rule import AfterFork
from gdbheap.report.text.numbers import size_text
from gdbheap.report.words.finding_words import Words

ADVICE = "use PSS, not RSS, to add up several processes. Shared pages stay shared until a process writes to them"
IN_PYTHON = (
    ". Python writes a reference count whenever it uses an object, and its collector writes next to objects. "
    "gc.freeze() before fork() prevents only the collector's writes. '--children' shows whether reference counts or "
    "the collector copied the pages"
)


def _text(figures: AfterFork) -> str:
    return (
        f"{size_text(figures.pss)} of {size_text(figures.anonymous)} of private memory is this process's share "
        "(Pss_Anon). The process shares the rest with its parent and child processes since fork(), and the RSS of "
        "each process counts the shared pages in full"
    )


def _advice(figures: AfterFork) -> str:
    return ADVICE + IN_PYTHON * figures.python


WORDS = Words(AfterFork, _text, _advice)
