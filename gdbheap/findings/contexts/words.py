"""postgresql-context: the memory contexts of a PostgreSQL backend that have most."""

from __future__ import annotations

from gdbheap.findings.contexts.rule import LargestContext
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words


def _text(figures: LargestContext) -> str:
    name = figures.name
    if figures.statements:
        return (
            f"{counted(figures.statements, 'prepared statement has', 'prepared statements have')} "
            f"{size_text(figures.total)} in PostgreSQL's memory contexts {name}"
        )
    if figures.count > 1:
        return (
            f"PostgreSQL's {figures.count:,} memory contexts {name} are the largest: {size_text(figures.total)} from "
            f"malloc, {size_text(figures.free)} of them free in them"
        )
    return (
        f"PostgreSQL's memory context {name} is the largest: {size_text(figures.total)} from malloc, "
        f"{size_text(figures.free)} of them free in it"
    )


def _advice(figures: LargestContext) -> str:
    if figures.statements:
        return (
            "DEALLOCATE ALL frees them in the session that prepared them; bound the driver's or the pooler's statement "
            "cache, or let it close statements that it does not use again. 'heap contexts' shows the text of each"
        )
    return (
        "'heap contexts' shows it among the others, with what each is for: a context of an executor's goes with its "
        "query, whose hash tables and sorts work_mem bounds; one of a cache goes with the connection"
    )


WORDS = Words(LargestContext, _text, _advice)
