"""``heap chunks`` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.numbers import address_text, arena_text, counted
from gdbheap.report.style import Style
from gdbheap.report.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.chunks import Chunk, Chunks

__all__ = ["render"]

COLUMNS = (
    Column("address"), Column("size"), Column("arena"), Column("state", True), Column("list", True),
    Column("what", True),
)  # fmt: skip


def render(answer: Chunks, style: Style) -> str:
    """A row a chunk, what is not listed as one row, the total; then a sentence."""
    if not answer.count:
        return style.filled("No chunk matches; 'heap sizes' shows which sizes there are.")
    rows = [_row(chunk, style) for chunk in answer.chunks]
    left = answer.count - len(answer.chunks)
    if left:
        rest = answer.bytes - sum(chunk.size for chunk in answer.chunks)
        rows.append([f"{left:,} more", style.size(rest), *[""] * 4])
    total = ["total", style.size(answer.bytes), *[""] * 4]
    return join(table(COLUMNS, rows, style, total), style.filled(_sentence(answer, style)))


def _row(chunk: Chunk, style: Style) -> list[str]:
    where = [address_text(chunk.address), style.size(chunk.size), arena_text(chunk.arena)]
    return [*where, chunk.state, chunk.list or "-", chunk.what or "-"]


def _sentence(answer: Chunks, style: Style) -> str:
    chunks = counted(answer.count, "chunk matches", "chunks match")
    return f"{chunks}: {style.bytes(answer.bytes)}, headers included. 'heap at ADDRESS' tells more of one."
