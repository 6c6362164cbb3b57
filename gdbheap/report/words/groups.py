"""``heap pyobjects --group`` for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, left_over, table

if TYPE_CHECKING:
    from gdbheap.answers.groups import Groups

__all__ = ["render"]

NOT_SET, NOT_READ = "(not set)", "(not read)"


def render(answer: Groups, style: Style) -> str:
    """A row a value of the attribute, the rest as one row, what could not be read, the total; then a sentence."""
    if not answer.count:
        return style.filled("No object is of a type whose name matches; 'heap pyobjects' lists the types.")
    columns = (Column("count"), Column("objects"), Column("buffers"), SHARE, Column(answer.attribute, True))
    share = style.shares_within(answer.bytes + answer.buffers, answer.absent)
    rows = [_row(row.count, row.bytes, row.buffers, row.value or NOT_SET, style, share) for row in answer.groups]
    names = ("count", "bytes", "buffers")
    unread = answer.unread
    count, size, buffers = left_over(answer, [*answer.groups, unread], names)
    if count:
        rows.append(_row(count, size, buffers, "(other values)", style, share))
    if unread.count:
        rows.append(_row(unread.count, unread.bytes, unread.buffers, NOT_READ, style, share))
    total = _row(
        answer.count, answer.bytes, answer.buffers, "total", style, lambda size: style.share(size, answer.absent)
    )
    objects = counted(answer.count, "object holds", "objects hold")
    text = f"{objects} {style.bytes(answer.bytes)} themselves and own {style.bytes(answer.buffers)} of buffers."
    return join(table(columns, rows, style, total), style.filled(text), _unread(answer, style))


def _unread(answer: Groups, style: Style) -> str:
    """Of how many it is unknown whether they have a value, and which."""
    if not answer.unread.count:
        return ""
    of = "one object" if answer.unread.count == 1 else f"{answer.unread.count:,} objects"
    return style.filled(f"The value of {of} could not be read: the rows above may lack some.")


def _row(count: int, size: int, buffers: int, value: str, style: Style, share: Callable[[int], str]) -> list[str]:
    return [count_text(count), style.size(size), style.size(buffers), share(size + buffers), value]
