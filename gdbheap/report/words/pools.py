"""The text of ``heap pools``: a row for each size class of pymalloc."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, count_text, counted, share_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, table
from gdbheap.report.words.mimalloc import render_pages

if TYPE_CHECKING:
    from gdbheap.answers.pools import ArenaUse, PinningBlocks, PoolClass, Pools

__all__ = ["render"]

COLUMNS = (
    Column("block size"), Column("pools"), Column("blocks used"), Column("blocks free"), Column("used bytes"),
    Column("free bytes"), Column("held"), SHARE,
)  # fmt: skip

ASKED = (
    Column("block size"), Column("objects"), Column("asked for"), Column("handed out"), Column("wasted"),
    Column("%wasted"), Column("arenas"), Column("kept alone"), Column("blocks there"),
)  # fmt: skip
FILL = (Column("filled to"), Column("arenas"), Column("used"), Column("not used"))
EMPTIEST = (Column("arena"), Column("used"), Column("%used"), Column("blocks"), Column("blocks by size", True))
PINS = (
    Column("arena"), Column("blocks"), Column("bytes"), Column("first address"), Column("what", True),
)  # fmt: skip
NEARLY_EMPTY = 25
NOT_IN_USE = (
    "pymalloc is not in use here: it has no arena, and every list of its pools is empty (PYTHONMALLOC=malloc, or "
    "another allocator). Python's objects are in the memory of the allocator that replaces pymalloc; 'heap "
    "pyobjects' counts the objects in malloc's chunks."
)


def render(answer: Pools, whole: Pools, style: Style, detail: bool = False) -> str:
    """Return the text of the answer: a row for each size class, and one for the free pools.

    ``whole``: the answer with all its size classes. ``detail``: add the bytes that objects requested, the fill of the
    arenas, and the contents of the emptiest ones.
    """
    if whole.mimalloc is not None:
        return render_pages(answer, whole, style, whole.mimalloc, detail)
    if not whole.interpreters:
        return style.filled(NOT_IN_USE)
    rows = [_row(row, answer.pool_size or 0, style) for row in answer.rows]
    if len(whole.rows) > len(answer.rows):
        rows.append(_rest(answer, whole, style))
    rows.append(_free_pools(whole, style))
    details = (_asked(answer, style), _fill(whole, style), _emptiest(whole, style), _pins(whole, style))
    parts = (_sentence(whole, style), _interpreters(whole, style), _sparse(whole, style))
    sentence = style.filled(" ".join(filter(None, parts)))
    return join(sentence, table(COLUMNS, rows, style, _total(whole, style)), *(details if detail else ()))


def _cells(name: str, classes: list[PoolClass], pool_size: int, style: Style) -> list[str]:
    pools = sum(row.pools for row in classes)
    used = sum(row.used_count for row in classes)
    free = sum(row.free_count for row in classes)
    sizes = [
        sum(row.size * row.used_count for row in classes),
        sum(row.size * row.free_count for row in classes),
        pools * pool_size,
    ]
    counts = [count_text(pools), count_text(used), count_text(free)]
    return [name, *counts, *map(style.size, sizes), style.share(pools * pool_size)]


def _row(row: PoolClass, pool_size: int, style: Style) -> list[str]:
    return _cells(count_text(row.size), [row], pool_size, style)


def _rest(answer: Pools, whole: Pools, style: Style) -> list[str]:
    listed = {row.size for row in answer.rows}
    others = [row for row in whole.rows if row.size not in listed]
    return _cells(f"{len(others)} more", others, answer.pool_size or 0, style)


def _free_pools(answer: Pools, style: Style) -> list[str]:
    size = answer.free_pools * (answer.pool_size or 0)
    return ["free pools", count_text(answer.free_pools), "-", "-", "-", "-", style.size(size), style.share(size)]


def _total(answer: Pools, style: Style) -> list[str]:
    cells = _cells("total", answer.rows, answer.pool_size or 0, style)
    pools = sum(row.pools for row in answer.rows) + answer.free_pools
    cells[1] = count_text(pools)
    return [*cells[:-2], style.size(pools * (answer.pool_size or 0)), style.share(pools * (answer.pool_size or 0))]


def _sentence(answer: Pools, style: Style) -> str:
    used = sum(row.size * row.used_count for row in answer.rows)
    free = sum(row.size * row.free_count for row in answer.rows)
    arenas = counted(answer.arenas, "arena")
    empty = answer.free_pools * (answer.pool_size or 0)
    return (
        f"pymalloc holds {arenas} of {style.bytes(answer.arena_size or 0)}: {style.bytes(used)} in used blocks, "
        f"{style.bytes(free)} in free blocks of pools that are partly used, {style.bytes(empty)} in free pools. "
        "An arena is returned to the kernel only when all of its pools are free."
    )


def _interpreters(answer: Pools, style: Style) -> str:
    """Return the memory of each interpreter in words, if several have their own pools; "" otherwise."""
    if len(answer.interpreters) < 2:
        return ""
    shares = [f"{style.bytes(row.bytes)} in {count_text(row.arenas)}" for row in answer.interpreters]
    return (
        f"{len(answer.interpreters)} interpreters have pools of their own; the figures are their sums. The main "
        f"interpreter has {shares[0]} of the arenas in use, the others have {', '.join(shares[1:])}."
    )


def _sparse(answer: Pools, style: Style) -> str:
    """Return a sentence that counts the arenas that are nearly empty. Such arenas are pymalloc's equivalent
    of holes.
    """
    rows = [row for row in answer.fill if row.percent <= NEARLY_EMPTY]
    arenas, used = sum(row.arenas for row in rows), sum(row.used for row in rows)
    if not arenas:
        return ""
    held = counted(arenas, "arena is", "arenas are")
    return (
        f"{held} at most {NEARLY_EMPTY} % full and kept by {style.bytes(used)} in use: 'heap pools --detail' shows "
        "which blocks these are."
    )


def _asked(answer: Pools, style: Style) -> str:
    """Return a table with a row for each size class: the bytes that objects requested, and the arenas with such blocks.

    Only objects whose requested size is known are counted. A further column counts the arenas that contain only blocks
    of this class.
    """
    return table(ASKED, [_asked_row(row, style) for row in answer.rows], style)


def _asked_row(row: PoolClass, style: Style) -> list[str]:
    arenas = [count_text(row.arenas), count_text(row.alone), count_text(row.alone_blocks) if row.alone else "-"]
    if row.told is None or row.asked is None or row.wasted is None:
        return [count_text(row.size), "?", "?", "?", "?", "?", *arenas]
    sizes = [style.size(size) for size in (row.asked, row.asked + row.wasted, row.wasted)]
    return [
        count_text(row.size), count_text(row.told), *sizes, share_text(row.wasted, row.asked + row.wasted), *arenas,
    ]  # fmt: skip


def _fill(answer: Pools, style: Style) -> str:
    rows = [
        [f"{row.percent} %", count_text(row.arenas), style.size(row.used),
         style.size(row.arenas * (answer.arena_size or 0) - row.used)]
        for row in answer.fill
    ]  # fmt: skip
    return table(FILL, rows, style)


def _emptiest(answer: Pools, style: Style) -> str:
    return table(EMPTIEST, [_emptiest_row(use, answer.arena_size or 0, style) for use in answer.emptiest], style)


def _emptiest_row(use: ArenaUse, arena_size: int, style: Style) -> list[str]:
    sizes = ", ".join(f"{share.used_count:,} x {share.size} B" for share in use.classes)
    share = share_text(use.bytes, arena_size)
    return [address_text(use.address), style.size(use.bytes), share, count_text(use.blocks), sizes]


def _pins(answer: Pools, style: Style) -> str:
    rows = [
        [
            address_text(use.address), count_text(pin.blocks), style.size(pin.bytes), address_text(pin.address),
            _what(pin),
        ]
        for use in answer.emptiest
        for pin in use.pins
    ]  # fmt: skip
    return table(PINS, rows, style) if rows else ""


def _what(pin: PinningBlocks) -> str:
    return pin.what if pin.text is None else f"{pin.what}: {pin.text}"
