"""``heap arenas`` for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.numbers import address_text, count_text
from gdbheap.report.style import Style
from gdbheap.report.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.arenas import Arena, Arenas

__all__ = ["render"]

COLUMNS = (
    Column("arena"), Column("address"), Column("system"), SHARE, Column("in use"), Column("free"), Column("top"),
    Column("fast"), Column("tcache"), Column("used chunks"), Column("free chunks"),
)  # fmt: skip


def render(answer: Arenas, style: Style, cut: int = 0) -> str:
    """A row an arena, a row for the mapped chunks, the total as malloc_stats counts; ``cut`` arenas are not listed."""
    rows = [_row(arena, style) for arena in answer.arenas]
    rows.append(_mmapped(answer, style))
    if cut:
        rows.append(_rest(answer, cut, style))
    return join(table(COLUMNS, rows, style, _total(answer, style)), style.filled(_sentence(answer, style)))


def _row(arena: Arena, style: Style) -> list[str]:
    sizes = [style.size(size) for size in (arena.in_use, arena.free, arena.top, arena.fast, arena.tcache)]
    name = "main" if arena.index == 0 else str(arena.index)
    counts = [count_text(arena.used_chunks), count_text(arena.free_chunks)]
    return [name, address_text(arena.address), style.size(arena.system), style.share(arena.system), *sizes, *counts]


def _mmapped(answer: Arenas, style: Style) -> list[str]:
    size = answer.mmapped.bytes
    cells = ["mapped", "-", style.size(size), style.share(size), style.size(size), "-", "-", "-", "-"]
    return [*cells, count_text(answer.mmapped.count), "-"]


def _rest(answer: Arenas, cut: int, style: Style) -> list[str]:
    """What the arenas that are not listed hold: the total less the rows, so that the column adds up."""
    system = answer.total.system - answer.mmapped.bytes - sum(arena.system for arena in answer.arenas)
    in_use = answer.total.in_use - answer.mmapped.bytes - sum(arena.in_use for arena in answer.arenas)
    cells = [f"{cut} more", "-", style.size(system), style.share(system), style.size(in_use)]
    return [*cells, "-", "-", "-", "-", "-", "-"]


def _total(answer: Arenas, style: Style) -> list[str]:
    total = answer.total
    return ["total", "", style.size(total.system), style.share(total.system), style.size(total.in_use), *[""] * 6]


def _sentence(answer: Arenas, style: Style) -> str:
    total = answer.total
    unused = total.system - total.in_use
    tcache = sum(arena.tcache for arena in answer.arenas)
    return (
        f"malloc holds {style.bytes(total.system)} from the kernel and counts {style.bytes(total.in_use)} of it as in "
        f"use; {style.bytes(unused)} is free. Blocks that wait in a thread's tcache ({style.bytes(tcache)}) "
        "count as in use here, as in malloc_stats(), although the program has freed them. "
        "Not all of it need be resident: 'heap' says what is."
    )
