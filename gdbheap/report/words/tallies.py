"""The text of ``heap pyobjects --by=size``, ``length`` and ``module``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.tallies import Tallies, TallyRow

__all__ = ["render"]


def render(answer: Tallies, style: Style) -> str:
    """Return the text of the answer. It begins with the number of all objects, and their bytes without buffers. A table
    has a row for each size, length or module, one for groups that are not listed, and the total.
    """
    columns = (Column("count"), Column("own"), SHARE, Column(answer.tally_of, not _is_number(answer)))
    share = style.shares_within(answer.own, answer.absent)
    rows = [_row(row.count, row.own, _key(row, answer, style), style, share) for row in answer.rows]
    count, size = (getattr(answer, name) - sum(getattr(row, name) for row in answer.rows) for name in ("count", "own"))
    if count:
        rows.append(_row(count, size, "others", style, share))
    total = _row(answer.count, answer.own, "total", style, lambda size: style.share(size, answer.absent))
    objects = counted(answer.count, "object holds", "objects hold")
    text = f"{objects} {style.bytes(answer.own)} themselves, without the buffers that they own."
    return join(style.filled(text), table(columns, rows, style, total))


def _is_number(answer: Tallies) -> bool:
    return answer.tally_of != "module"


def _key(row: TallyRow, answer: Tallies, style: Style) -> str:
    if isinstance(row.key, str):
        return row.key
    return style.size(row.key) if answer.tally_of == "size" else count_text(row.key)


def _row(count: int, size: int, key: str, style: Style, share: Callable[[int], str]) -> list[str]:
    return [count_text(count), style.size(size), share(size), key]
