"""The text of ``heap sizes``: how the sizes of used and of free blocks are distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.sizes import OtherSizes, SizeRange, SizeRow, Sizes, SizeTotal

__all__ = ["render"]

COLUMNS = (
    Column("size"), Column("used chunks"), Column("used bytes"), Column("free chunks"), Column("free bytes"),
)  # fmt: skip

# The most rows in the table of another allocator.
SHOWN = 20
# Columns that only some allocators have.
MORE = {"asked": "asked for", "freed": "saved by packing"}


def render(answer: Sizes, whole: Sizes, style: Style) -> str:
    """Return the text of the answer. It begins with the sums of used and free chunks. One table has a row for each
    range of sizes, a second one a row for each size. Sizes that are not listed share one row. Both tables end with
    the same total. The sizes of allocators other than malloc follow.

    ``whole``: the answer with all its sizes.
    """
    others = [part for found in whole.others for part in _others(found, style)]
    if others and not (whole.sizes or whole.top or whole.overhead):
        return join(*others)
    total = _row("total", whole.total, style)
    ranges = [_row(_range(found, style), found.total, style) for found in whole.ranges if _has_any(found.total)]
    rows = [_row(count_text(row.size), row, style) for row in answer.sizes]
    if len(answer.sizes) < len(whole.sizes):
        rows.append(_row(f"{len(whole.sizes) - len(answer.sizes):,} more", _rest(answer), style))
    return join(
        style.filled(_sentence(whole, style)),
        table(COLUMNS, ranges, style, total),
        table((Column("exact size"), *COLUMNS[1:]), rows, style, total),
        *others,
    )


def _has_any(total: SizeTotal) -> bool:
    return total.used + total.free > 0


def _others(others: OtherSizes, style: Style) -> list[str]:
    """Return the sums of another allocator's blocks as a sentence, and the table of its sizes.

    The table has a row for each of the largest sizes and one row for all others. Columns with unknown values are left
    out.
    """
    most = sorted(others.sizes, key=lambda row: -row.used - row.free)[:SHOWN]
    more = [name for name in MORE if getattr(others, name) is not None]
    rows = [
        [*_row(count_text(row.size), row, style), *(style.size(getattr(row, name) or 0) for name in more)]
        for row in sorted(most, key=lambda row: row.size)
    ]
    total, left = others.total, len(others.sizes) - len(most)
    if left:
        names = ("used_count", "free_count", "used", "free")
        rest = (getattr(total, name) - sum(getattr(row, name) for row in most) for name in names)
        beside = (getattr(others, name) - sum(getattr(row, name) or 0 for row in most) for name in more)
        rows.append([*_row(f"{left:,} more", type(total)(*rest), style), *map(style.size, beside)])
    columns = [
        Column(f"{others.title}'s size"),
        *(Column(column.title.replace("chunks", "blocks")) for column in COLUMNS[1:]),
        *(Column(MORE[name]) for name in more),
    ]
    last = [*_row("total", total, style), *(style.size(getattr(others, name)) for name in more)]
    return [style.filled(_other_sentence(others, style)), table(columns, rows, style, last)]


def _other_sentence(others: OtherSizes, style: Style) -> str:
    total = others.total
    parts = [
        f"{total.used_count:,} blocks of {others.title} are in use, {style.bytes(total.used)} together. There is room "
        f"for {total.free_count:,} more blocks of these sizes: {style.bytes(total.free)}."
    ]
    if others.asked is not None:
        slack = total.used - others.asked
        parts.append(
            f"The program requested {style.bytes(others.asked)} of the bytes in use; the other {style.bytes(slack)} "
            "is slack: the difference between block sizes and requested sizes."
        )
    if others.freed:
        parts.append(f"Packing the blocks of each size would free {style.bytes(others.freed)}.")
    return " ".join(parts)


def _row(name: str, sums: SizeRow | SizeTotal, style: Style) -> list[str]:
    used = [count_text(sums.used_count), style.size(sums.used)]
    return [name, *used, count_text(sums.free_count), style.size(sums.free)]


def _range(found: SizeRange, style: Style) -> str:
    return f"{style.size(found.start)} to {style.size(found.end)}"


def _rest(answer: Sizes) -> SizeTotal:
    """Return the figures of the sizes that are not listed: the total minus the listed rows."""
    names = ("used_count", "free_count", "used", "free")
    left = (getattr(answer.total, name) - sum(getattr(row, name) for row in answer.sizes) for name in names)
    return type(answer.total)(*left)


def _sentence(whole: Sizes, style: Style) -> str:
    total = whole.total
    has = "has a mapping of its" if whole.mapped == 1 else "have a mapping of their"
    mapped = f" {whole.mapped:,} of them {has} own." if whole.mapped else ""
    used = counted(total.used_count, "chunk is", "chunks are")
    free = f"{counted(total.free_count, 'chunk is', 'chunks are')} free, {style.bytes(total.free)} together,"
    free = f"{free} in bins, fast bins and thread caches" if total.free_count else "No chunk is free"
    return (
        f"{used} in use, {style.bytes(total.used)} together.{mapped} {free}. "
        f"The rest of malloc's memory is top chunks ({style.bytes(whole.top)}) and overhead "
        f"({style.bytes(whole.overhead)})."
    )
