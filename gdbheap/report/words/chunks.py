"""The text of ``heap chunks``: a row for each listed block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.arena_names import arena_name
from gdbheap.report.text.numbers import address_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.chunks import Chunk, Chunks

__all__ = ["render"]

COLUMNS = (
    Column("address"), Column("size"), Column("arena"), Column("state", True), Column("list", True),
    Column("what", True),
)  # fmt: skip


ASKED = Column("asked for")
# The index of the column with the requested size: the one after the size.
ASKED_AT = 2


def render(answer: Chunks, style: Style) -> str:
    """Return the text of the answer: the number and bytes of all matching chunks, then a row for each listed chunk.

    One row stands for all chunks that are not listed. The total is the last row. There is a column for the requested
    size if it is known for any chunk.
    """
    if not answer.count:
        return style.filled("No chunk matches; 'heap sizes' shows which sizes exist.")
    tells = any(chunk.asked is not None for chunk in answer.rows)
    rows = [_row(chunk, style) for chunk in answer.rows]
    left = answer.count - len(answer.rows)
    if left:
        rest = answer.bytes - sum(chunk.size for chunk in answer.rows)
        rows.append([f"{left:,} more", style.size(rest), *[""] * 4])
    total = ["total", style.size(answer.bytes), *[""] * 4]
    columns: tuple[Column, ...] = COLUMNS
    if tells:
        asked = ["-" if chunk.asked is None else style.size(chunk.asked) for chunk in answer.rows]
        rows = [_with(row, cell) for row, cell in zip(rows, [*asked, *[""] * (len(rows) - len(asked))])]
        total, columns = _with(total, ""), (*COLUMNS[:ASKED_AT], ASKED, *COLUMNS[ASKED_AT:])
    return join(style.filled(_sentence(answer, style)), table(columns, rows, style, total))


def _with(row: list[str], asked: str) -> list[str]:
    return [*row[:ASKED_AT], asked, *row[ASKED_AT:]]


def _row(chunk: Chunk, style: Style) -> list[str]:
    where = [address_text(chunk.address), style.size(chunk.size), arena_name(chunk.arena, chunk.allocator)]
    return [*where, chunk.state, chunk.list or "-", chunk.what or "-"]


def _sentence(answer: Chunks, style: Style) -> str:
    chunks = counted(answer.count, "chunk matches", "chunks match")
    return f"{chunks}: {style.bytes(answer.bytes)}, including headers. 'heap at ADDRESS' shows more about one chunk."
