"""postgresql-context: the memory context of a PostgreSQL backend that has most."""

from __future__ import annotations

from gdbheap.answers.findings.contexts import LargestContext
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import size_text


def _text(figures: LargestContext) -> str:
    name = figures.name
    return (
        f"PostgreSQL's memory context {name} is the largest: {size_text(figures.total)} from malloc, "
        f"{size_text(figures.free)} of them free in it"
    )


def _advice(figures: LargestContext) -> str:
    return (
        "'heap contexts' shows it among the others, with what each is for: a context of an executor's goes with its "
        "query, whose hash tables and sorts work_mem bounds; one of a cache goes with the connection"
    )


WORDS = Words(LargestContext, _text, _advice)
