"""The text of ``heap info``: a row for each fact about the target, with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.answers.info import (
    ABORT,
    ALLOCATOR,
    NO_PYTHON,
    OBJECT,
    PROGRAM,
    PYTHON,
    RESIDENCY,
    TARGET,
    UNKNOWN,
)
from gdbheap.report.text.numbers import counted, listed
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.report.words.aborted import ended_by
from gdbheap.report.words.verdict import program_text

if TYPE_CHECKING:
    from gdbheap.answers.info import Info

__all__ = ["render"]

COLUMNS = (Column("fact", True), Column("value", True), Column("source", True), Column("confirmed by", True))
# Facts without which other answers lack something.
NEEDED = (ALLOCATOR, NO_PYTHON, RESIDENCY)
PROCESS = "process "


def render(answer: Info, style: Style, whole: Info | None = None) -> str:
    """Return the text of the answer. It begins with the program, its Python and its allocator, and says what is
    unknown. The next sentence counts the facts that a second source or the target's memory confirms. A table has a
    row for each fact.

    ``whole``: the answer with all facts, if ``answer`` has fewer.
    """
    rows = [[fact.fact, fact.value, fact.source, fact.confirmed or "-"] for fact in answer.rows]
    known = whole or answer
    ended = [ended_by(fact.value) for fact in known.rows if fact.fact == ABORT]
    told = [_program(known), _known(known), _confirmed(known)]
    return join(*ended, style.filled(" ".join(told)), table(COLUMNS, rows, style))


def _program(answer: Info) -> str:
    """Return a sentence with the program, the release of Python and the allocator, as far as they are known.

    The sentence begins with gdbheap's own words, so that no name begins a line.
    """
    values = {fact.fact: fact.value for fact in answer.rows}
    parts = [f"Python {values[PYTHON]}"] if PYTHON in values else []
    parts += [f"the allocator {values[ALLOCATOR]}"] if values[ALLOCATOR] != UNKNOWN else []
    using = f" with {listed(parts)}" if parts else ""
    program = program_text(values[PROGRAM], None) if values[PROGRAM] != UNKNOWN else "an unknown program"
    pid = values[TARGET].removeprefix(PROCESS)
    who = f"Process {pid} runs" if pid.isdigit() else "The process of the core ran"
    return f"{who} {program}{using}."


def _known(answer: Info) -> str:
    """Return a sentence that names what gdbheap needs and does not know."""
    unknown = [fact.fact for fact in answer.rows if fact.value == UNKNOWN]
    missing = [name for name in NEEDED if name in unknown]
    objects = sum(name.startswith(OBJECT) for name in unknown)
    missing += [counted(objects, "loaded object")] if objects else []
    return f"Unknown: {listed(missing)}." if missing else "Everything that gdbheap needs is known."


def _confirmed(answer: Info) -> str:
    confirmed = sum(fact.confirmed is not None for fact in answer.rows)
    are = "is" if confirmed == 1 else "are"
    return (
        f"{confirmed} of {counted(len(answer.rows), 'fact')} {are} confirmed by a second source or by the target's own "
        "bytes."
    )
