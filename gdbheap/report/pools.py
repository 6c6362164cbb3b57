"""``heap pools`` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.numbers import count_text
from gdbheap.report.style import Style
from gdbheap.report.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.pools import PoolClass, Pools

__all__ = ["render"]

COLUMNS = (
    Column("block size"), Column("pools"), Column("blocks used"), Column("blocks free"), Column("used bytes"),
    Column("free bytes"), Column("held"), SHARE,
)  # fmt: skip


def render(answer: Pools, whole: Pools, style: Style) -> str:
    """A row a size class and the free pools; ``whole`` is the answer before size classes were left out."""
    rows = [_row(row, answer.pool_size, style) for row in answer.classes]
    if len(whole.classes) > len(answer.classes):
        rows.append(_rest(answer, whole, style))
    rows.append(_free_pools(whole, style))
    return join(table(COLUMNS, rows, style, _total(whole, style)), style.filled(_sentence(whole, style)))


def _cells(name: str, classes: list[PoolClass], pool_size: int, style: Style) -> list[str]:
    pools = sum(row.pools for row in classes)
    used = sum(row.used for row in classes)
    free = sum(row.free for row in classes)
    sizes = [
        sum(row.size * row.used for row in classes),
        sum(row.size * row.free for row in classes),
        pools * pool_size,
    ]
    counts = [count_text(pools), count_text(used), count_text(free)]
    return [name, *counts, *map(style.size, sizes), style.share(pools * pool_size)]


def _row(row: PoolClass, pool_size: int, style: Style) -> list[str]:
    return _cells(count_text(row.size), [row], pool_size, style)


def _rest(answer: Pools, whole: Pools, style: Style) -> list[str]:
    listed = {row.size for row in answer.classes}
    others = [row for row in whole.classes if row.size not in listed]
    return _cells(f"{len(others)} more", others, answer.pool_size, style)


def _free_pools(answer: Pools, style: Style) -> list[str]:
    size = answer.free_pools * answer.pool_size
    return ["free pools", count_text(answer.free_pools), "-", "-", "-", "-", style.size(size), style.share(size)]


def _total(answer: Pools, style: Style) -> list[str]:
    cells = _cells("total", answer.classes, answer.pool_size, style)
    pools = sum(row.pools for row in answer.classes) + answer.free_pools
    cells[1] = count_text(pools)
    return [*cells[:-2], style.size(pools * answer.pool_size), style.share(pools * answer.pool_size)]


def _sentence(answer: Pools, style: Style) -> str:
    used = sum(row.size * row.used for row in answer.classes)
    free = sum(row.size * row.free for row in answer.classes)
    arenas = "1 arena" if answer.arenas == 1 else f"{answer.arenas:,} arenas"
    empty = answer.free_pools * answer.pool_size
    return (
        f"pymalloc holds {arenas} of {style.bytes(answer.arena_size)}: {style.bytes(used)} in used blocks, "
        f"{style.bytes(free)} in free blocks of pools that are partly used, {style.bytes(empty)} in free pools. "
        "An arena goes back to the kernel only when every one of its pools is free."
    )
