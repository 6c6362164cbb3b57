"""The text of ``heap owners``: a row for each holder of memory in use, or for each block or array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.answers.shared_out import NOBODY
from gdbheap.report.text.numbers import address_text, count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, Shares, join, left_over, table
from gdbheap.report.text.unfinished import NO_HOLDER, at_least, unfinished
from gdbheap.report.words.arrays import column_text, render_arrays, shape_text
from gdbheap.report.words.retained import SHARED

if TYPE_CHECKING:
    from gdbheap.answers.owners import HeldTogether, Owners

__all__ = ["render_owners"]

PROVEN = "examined"
SHOWN_PARTS = 2
SHARED_OUT = Column("count"), Column("holder", True), Column("largest parts", True)
TOGETHER = Column("what", True), Column("holder", True)
OUTSIDE = Column("resident"), SHARE, Column("holder", True)
HELD = Column("what", True), Column("type", True), Column("path", True)


def render_owners(answer: Owners, style: Style, by_array: bool = False) -> str:
    """Return the text of ``heap owners``: a row for each block, group or array, then sentences about what the list
    leaves out."""
    return join(_owners(answer, style, by_array), _left_outside(answer, style))


def _left_outside(answer: Owners, style: Style) -> str:
    if not answer.outside:
        return ""
    size = f"{style.bytes(answer.outside)}{style.resident_of_rss(answer.outside)}"
    rows = [[style.size(row.resident), style.share_of_resident(row.resident), row.path] for row in answer.outside_rows]
    told = f"Not in this list: {size} that no allocator handed out. The holders of this memory are:"
    return join(style.filled(told), table(OUTSIDE, rows, style))


def _owners(answer: Owners, style: Style, by_array: bool) -> str:
    if answer.arrays:
        return render_arrays(answer.arrays, answer.count, answer.bytes, answer.absent, style)
    if answer.not_examined:
        shown = _held_together(answer, style) if answer.groups else NO_HOLDER
        return join(shown, unfinished(answer.not_examined, answer.next, style))
    if not answer.count:
        return style.filled(
            "No DataFrame, table or array is large enough (see --min)."
            if by_array
            else "No block in use is large enough (see --min)."
        )
    if answer.groups:
        return _held_together(answer, style)
    shares = Shares(style, ((row.size, row.absent) for row in answer.owners))
    rows = [
        [address_text(row.address), style.size(row.size), *shares.cells(row.size, row.absent), row.what, row.type or "",
         row.path or row.chain]
        for row in answer.owners
    ]  # fmt: skip
    large = counted(answer.count, "block in use has", "blocks in use have")
    least = "" if answer.least is None else f" at least {style.bytes(answer.least)} each and"
    whole = f"{style.bytes(answer.bytes)} together{style.of_rss(answer.bytes, answer.absent)}"
    columns = Column("address"), Column("size"), *shares.columns, *HELD
    return join(style.filled(f"{large}{least} {whole}."), table(columns, rows, style))


def _held_together(answer: Owners, style: Style) -> str:
    if any(row.parts for row in answer.groups):
        return _shared_out(answer, style)
    shares = Shares(style, ((row.bytes, row.absent) for row in answer.groups))
    rows = [
        [count_text(row.count), style.size(row.bytes), *shares.cells(row.bytes, row.absent), row.what or "",
         row.root or ""]
        for row in answer.groups
    ]  # fmt: skip
    columns = Column("blocks"), Column("bytes"), *shares.columns, *TOGETHER
    whole = f"{style.bytes(answer.bytes)} together{style.of_rss(answer.bytes, answer.absent)}"
    told = f"The groups contain {counted(answer.count, 'block')} in use, {whole}."
    return join(style.filled(told), table(columns, rows, style))


def _shared_out(answer: Owners, style: Style) -> str:
    sizes = [(row.bytes, row.absent) for row in answer.groups]
    shares = Shares(style, [(answer.bytes, answer.absent), *sizes])
    rows = [
        [at_least(style.size(row.bytes), row.at_least), *shares.cells(row.bytes, row.absent), count_text(row.count),
         _holder(row), _most(row, style)]
        for row in answer.groups
    ]  # fmt: skip
    count, size, absent = left_over(answer, answer.groups, ("count", "bytes", "absent"))
    if size:
        rows.append([style.size(size), *shares.cells(size, absent), count_text(count), "(more)", ""])
    share, is_cut = shares.cells(answer.bytes, answer.absent), answer.not_examined > 0
    total = [style.size(answer.bytes), *share, count_text(answer.count), PROVEN if is_cut else "in use", ""]
    told = style.filled(shared_text(answer.shared, style)) if answer.shared else ""
    shown = table((Column("bytes"), *shares.columns, *SHARED_OUT), rows, style, total)
    return join(style.filled(_holds_most(answer, style)), shown, told)


def _holds_most(answer: Owners, style: Style) -> str:
    """Return a sentence that names the largest holder.

    The sentence begins with gdbheap's own words, so that no name begins a line.
    """
    first = max(answer.groups, key=lambda row: row.bytes)
    size = f"{at_least(style.bytes(first.bytes), first.at_least)}{style.of_rss(first.bytes, first.absent)}"
    name = source_path(first.root or "") or first.what or "one holder"
    outside = answer.outside_rows[0] if answer.outside_rows else None
    if outside is not None and outside.resident > first.bytes - first.absent:
        size = f"{style.bytes(outside.resident)}{style.resident_of_rss(outside.resident)}"
        return f"The largest holder is {outside.path}: {size}, which no allocator handed out."
    if first.kind == NOBODY:
        return f"The largest part is unreachable: {size} of {style.bytes(answer.bytes)} in use."
    is_one = first.variables <= 1
    largest = f"The largest {'holder is' if is_one else 'holders are'} {name}"
    return f"{largest}: {size} of {style.bytes(answer.bytes)} in use."


def shared_text(size: int, style: Style) -> str:
    """Return a sentence about shared mappings and what happens to them once their objects are freed."""
    return f"Shared mappings are {style.bytes(size)} of that. {SHARED}"


def _holder(row: HeldTogether) -> str:
    """Return a holder's name. For a DataFrame or an array, add its type and shape."""
    if row.array is None:
        return row.root or ""
    return f"{row.array.what} {shape_text(row.array.shape, row.array.dtype)} of {row.root}"


def _most(row: HeldTogether, style: Style) -> str:
    """Return a holder's contents: the largest columns of a DataFrame; for other holders, the largest kinds of
    blocks.
    """
    if row.array is not None and row.array.columns:
        return ", ".join(column_text(column, style) for column in row.array.columns[:SHOWN_PARTS])
    return ", ".join(f"{part.count:,} x {part.what}" if part.count else part.what for part in row.parts[:SHOWN_PARTS])
