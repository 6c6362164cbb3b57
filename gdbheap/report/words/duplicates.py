"""The text of ``heap duplicates``: a row for each Python value that is stored more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.duplicates import Duplicate, Duplicates

__all__ = ["render"]

DUPLICATES = (
    Column("copies"), Column("bytes"), Column("would save"), SHARE, Column("address"), Column("type", True),
    Column("value", True),
)  # fmt: skip
HELD_BY = Column("held by", True)
MAX_TYPES = 4


def render(answer: Duplicates, style: Style, with_holders: bool) -> str:
    """Return the text of ``heap duplicates``: the bytes that one copy of each value would save, then a row for each
    value.

    One row stands for all values that are not listed. The total is the last row. ``with_holders``: add the holders of
    the values.
    """
    if not answer.count:
        return style.filled("No str, bytes or number, and no tuple of these, is stored more than once.")
    more = (HELD_BY,) if with_holders else ()
    share = style.shares_within(answer.saved, answer.absent)
    rows = [_row(row, style, with_holders, share(row.saved)) for row in answer.rows]
    blank = [""] * (3 + len(more))
    left = answer.count - len(answer.rows)
    if left:
        copies = count_text(answer.copies - sum(row.count for row in answer.rows))
        saved = answer.saved - sum(row.saved for row in answer.rows)
        rows.append([copies, "", style.size(saved), share(saved), *blank[:-1], f"({left:,} more values)"])
    whole = [style.size(answer.saved), style.share(answer.saved, answer.absent)]
    total = [count_text(answer.copies), "", *whole, *blank[:-1], "total"]
    kinds = ", ".join(f"{style.bytes(one.saved)} of {one.type}" for one in answer.types[:MAX_TYPES] if one.saved)
    values = counted(answer.count, "repeated value")
    text = (
        f"Keeping one copy of each of {values} would save {style.bytes(answer.saved)}"
        f"{style.of_rss(answer.saved, answer.absent)}: {kinds}. {answer.copies:,} objects have these values."
    )
    return join(style.filled(text), table((*DUPLICATES, *more), rows, style, total))


def _row(row: Duplicate, style: Style, with_holders: bool, share: str) -> list[str]:
    held = ", ".join(f"{one.type} ({one.count:,})" for one in row.held_by) or "-"
    return [
        count_text(row.count), style.size(row.bytes), style.size(row.saved), share,
        address_text(row.address), row.type, row.text or "-", *([held] if with_holders else []),
    ]  # fmt: skip
