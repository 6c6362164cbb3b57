"""The text of ``heap pools`` for a Python that uses mimalloc instead of pymalloc."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import count_text, counted, share_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.pools import MimallocUse, PoolClass, Pools

__all__ = ["render_pages"]

SIZES = (
    Column("block size"), Column("pages"), Column("blocks used"), Column("blocks free"), Column("used bytes"),
    Column("free bytes"), SHARE,
)  # fmt: skip
HEAPS = (
    Column("pages"), Column("abandoned"), Column("blocks used"), Column("used bytes"), SHARE, Column("purpose", True),
)  # fmt: skip
ASKED = (
    Column("block size"), Column("objects"), Column("asked for"), Column("handed out"), Column("wasted"),
    Column("%wasted"),
)  # fmt: skip


def render_pages(answer: Pools, whole: Pools, style: Style, use: MimallocUse, detail: bool) -> str:
    """Return the text of the answer: how much memory mimalloc has, a table of block sizes, and a table of the purposes
    of its pages.

    ``whole``: the answer with all its block sizes.
    ``detail``: add the bytes that objects requested.
    """
    rows = [_cells(count_text(row.size), [row], style) for row in answer.rows]
    rest = [row for row in whole.rows if row not in answer.rows]
    if rest:
        rows.append(_cells(f"{len(rest)} more", rest, style))
    total = _cells("total", whole.rows, style)
    tables = [table(SIZES, rows, style, total), table(HEAPS, _heaps(use, style), style)]
    asked = [table(ASKED, [_asked(row, style) for row in answer.rows if row.told], style)] if detail else []
    return join(style.filled(_sentence(whole, use, style)), *tables, *asked)


def _cells(name: str, classes: Sequence[PoolClass], style: Style) -> list[str]:
    counts = [
        sum(row.pools for row in classes),
        sum(row.used_count for row in classes),
        sum(row.free_count for row in classes),
    ]
    used, free = sum(row.size * row.used_count for row in classes), sum(row.size * row.free_count for row in classes)
    return [name, *map(count_text, counts), style.size(used), style.size(free), style.share(used)]


def _heaps(use: MimallocUse, style: Style) -> list[list[str]]:
    return [
        [
            count_text(heap.page_count), count_text(heap.abandoned), count_text(heap.blocks), style.size(heap.bytes),
            style.share(heap.bytes), heap.name,
        ]
        for heap in use.heaps
    ]  # fmt: skip


def _asked(row: PoolClass, style: Style) -> list[str]:
    told, asked, wasted = row.told or 0, row.asked or 0, row.wasted or 0
    sizes = [style.size(size) for size in (asked, asked + wasted, wasted)]
    return [count_text(row.size), count_text(told), *sizes, share_text(wasted, asked + wasted)]


def _sentence(whole: Pools, use: MimallocUse, style: Style) -> str:
    used = sum(row.size * row.used_count for row in whole.rows)
    free = sum(row.size * row.free_count for row in whole.rows)
    segments = counted(use.segments, "segment")
    return (
        f"Python's blocks come from mimalloc here, not from pymalloc. mimalloc holds {segments}: {style.bytes(used)} "
        f"in used blocks, {style.bytes(free)} in free blocks of pages, {style.bytes(use.free_spans)} in spans without "
        f"a page. Outside of the segments, {style.bytes(use.reserved)} of address space is reserved."
    )
