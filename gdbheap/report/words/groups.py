"""The text of ``heap pyobjects --group``: a row for each value of an attribute."""

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
    """Return the text of the answer. It begins with the number of objects, the bytes of their own blocks, and the bytes
    of their buffers. A table has a row for each value of the attribute, one for values that are not listed, one for
    unreadable values, and the total. The last sentence says how many values could not be read.
    """
    if not answer.count:
        return style.filled("No object has a matching type; 'heap pyobjects' lists the types.")
    columns = (Column("count"), Column("own"), Column("buffers"), SHARE, Column(answer.attribute, True))
    share = style.shares_within(answer.own + answer.buffers, answer.absent)
    rows = [_row(row.count, row.own, row.buffers, row.value or NOT_SET, style, share) for row in answer.rows]
    names = ("count", "own", "buffers")
    unread = answer.not_read
    count, size, buffers = left_over(answer, [*answer.rows, unread], names)
    if count:
        rows.append(_row(count, size, buffers, "(other values)", style, share))
    if unread.count:
        rows.append(_row(unread.count, unread.own, unread.buffers, NOT_READ, style, share))
    total = _row(
        answer.count, answer.own, answer.buffers, "total", style, lambda size: style.share(size, answer.absent)
    )
    objects = counted(answer.count, "object has", "objects have")
    own = "its own block" if answer.count == 1 else "their own blocks"
    text = f"{objects} {style.bytes(answer.own)} in {own} and {style.bytes(answer.buffers)} in buffers."
    return join(style.filled(text), table(columns, rows, style, total), _unread(answer, style))


def _unread(answer: Groups, style: Style) -> str:
    """Return a sentence about the objects whose value could not be read; "" if there are none."""
    if not answer.not_read.count:
        return ""
    of = "one object" if answer.not_read.count == 1 else f"{answer.not_read.count:,} objects"
    return style.filled(f"The attribute of {of} could not be read: the groups above may be too small.")


def _row(count: int, size: int, buffers: int, value: str, style: Style, share: Callable[[int], str]) -> list[str]:
    return [count_text(count), style.size(size), style.size(buffers), share(size + buffers), value]
