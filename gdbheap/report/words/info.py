"""The text of ``heap info``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.answers.info import ABORT
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.report.words.aborted import ended_by

if TYPE_CHECKING:
    from gdbheap.answers.info import Info

__all__ = ["render"]

COLUMNS = (Column("fact", True), Column("value", True), Column("source", True), Column("confirmed by", True))


def render(answer: Info, style: Style) -> str:
    """Return the text of the answer: a row for each fact, and how many facts are confirmed by a second source or by the
    target's own memory."""
    rows = [[fact.fact, fact.value, fact.source, fact.confirmed or "-"] for fact in answer.rows]
    confirmed = sum(fact.confirmed is not None for fact in answer.rows)
    sentence = f"{len(answer.rows)} facts, {confirmed} confirmed by a second source or by the target's own bytes."
    ended = [ended_by(fact.value) for fact in answer.rows if fact.fact == ABORT]
    return join(*ended, table(COLUMNS, rows, style), sentence)
