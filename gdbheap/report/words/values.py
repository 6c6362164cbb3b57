"""The text of ``heap pyobjects --by=value``: a row for each value that objects have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.duplicates import ByValue

__all__ = ["render"]

VALUES = (
    Column("count"), Column("bytes"), SHARE, Column("address"), Column("type", True), Column("value", True),
)  # fmt: skip


def render(answer: ByValue, style: Style) -> str:
    """Return the text of ``heap pyobjects --by=value``: the number of objects and of different values, then a row for
    each value.

    One row stands for all values that are not listed. The total is the last row.
    """
    share = style.shares_within(answer.own, answer.absent)
    rows = [
        [count_text(row.count), style.size(row.own), share(row.own), address_text(row.address), row.type,
         row.text or "-"]
        for row in answer.rows
    ]  # fmt: skip
    count, size = (getattr(answer, name) - sum(getattr(row, name) for row in answer.rows) for name in ("count", "own"))
    if count:
        rows.append([count_text(count), style.size(size), share(size), "", "", "(other values)"])
    total = [
        count_text(answer.count),
        style.size(answer.own),
        style.share(answer.own, answer.absent),
        "",
        "",
        "total",
    ]
    objects = counted(answer.count, "object has", "objects have")
    text = (
        f"{objects} {counted(answer.matching, 'value', 'different values')}; the objects themselves take "
        f"{style.bytes(answer.own)}."
    )
    return join(style.filled(text), table(VALUES, rows, style, total))
