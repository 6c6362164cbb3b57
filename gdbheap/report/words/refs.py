"""The text of ``heap refs``: a row for each object or other memory that points to an object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.refs import Refs

__all__ = ["render"]

REFERRERS = (Column("address"), Column("certain", True), Column("how", True), Column("type", True))


def render(answer: Refs, style: Style) -> str:
    """Return the text of ``heap refs``: a row for each referrer, and how many more there are."""
    name = f"{address_text(answer.address)} ({answer.type})"
    if not answer.count:
        return style.filled(f"Nothing points to {name}.")
    rows = [[address_text(row.address), "yes" if row.certain else "no", row.edge, row.type] for row in answer.rows]
    more = answer.count - len(rows)
    rest = f"; {more:,} of them are not listed" if more else ""
    referrers = counted(answer.count, "reference points", "references point")
    return join(style.filled(f"{referrers} to {name}{rest}."), table(REFERRERS, rows, style))
