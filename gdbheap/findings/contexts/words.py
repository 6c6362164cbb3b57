"""Texts of the finding ``postgresql-context``: the largest memory contexts of a PostgreSQL backend."""

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
    which = f"{figures.count:,} memory contexts {name} are" if figures.count > 1 else f"memory context {name} is"
    sizes = f"{size_text(figures.total)} from malloc, {size_text(figures.free)} of it free"
    return f"PostgreSQL's {which} the largest: {sizes}"


def _advice(figures: LargestContext) -> str:
    if figures.statements:
        return (
            "run DEALLOCATE ALL in the session that prepared the statements, or limit the statement cache of the "
            "driver or pooler. 'heap contexts' shows the texts of some statements; add --top=all for all"
        )
    return (
        "'heap contexts' lists all contexts, each with its purpose. An executor's context ends with its query "
        "(work_mem limits its hash tables and sorts). A cache's context ends with the connection"
    )


WORDS = Words(LargestContext, _text, _advice)
