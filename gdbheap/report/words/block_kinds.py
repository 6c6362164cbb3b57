"""The text of ``heap chunks --by=type``: a row for each kind of block in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.errors import one_line
from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.block_kinds import BlockKinds, KindRow

__all__ = ["render"]

COLUMNS = (Column("bytes"), Column("blocks"), Column("filled"), Column("what", True))
LONGEST = 200


def render(answer: BlockKinds, style: Style) -> str:
    """Return the text of the answer: how many blocks have a known kind, and which command lists blocks.

    A row for each kind of block follows, one row for kinds that are not listed, one for blocks of unknown kind, and the
    total.
    """
    rows = [
        [style.size(row.bytes), count_text(row.count), _used(row, style), one_line(row.type, LONGEST)]
        for row in answer.rows
    ]
    rest, total = answer.unclassified, answer.total
    left = answer.count - len(answer.rows)
    if left:
        size = total.bytes - rest.bytes - sum(row.bytes for row in answer.rows)
        count = total.count - rest.count - sum(row.count for row in answer.rows)
        rows.append([style.size(size), count_text(count), "", f"{left:,} more"])
    rows.append([style.size(rest.bytes), count_text(rest.count), "", "blocks of unknown kind"])
    ends = [style.size(total.bytes), count_text(total.count), "", "total"]
    return join(style.filled(_sentence(answer)), table(COLUMNS, rows, style, ends))


def _used(row: KindRow, style: Style) -> str:
    """Return the bytes that items occupy in the containers of a row, as text; "" if the number is unknown."""
    return "" if row.occupied is None else style.size(row.occupied)


def _sentence(answer: BlockKinds) -> str:
    known = answer.total.count - answer.unclassified.count
    python = " 'heap pyobjects' lists Python objects." if answer.beside_python else ""
    blocks = (
        f"{known:,} of {counted(answer.total.count, 'block')} in use {'has' if known == 1 else 'have'} a known kind"
    )
    return f"{blocks}. 'heap chunks --type=GLOB' lists the blocks of a kind.{python}"
