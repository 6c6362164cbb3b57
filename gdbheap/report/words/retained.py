"""The text of ``heap retained``: the objects or groups that keep the most memory alive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.answers.retained import NAMED_BY_WORDS
from gdbheap.report.text.numbers import address_text, count_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, Shares, join, table
from gdbheap.report.text.unfinished import NO_HOLDER, STALE, at_least, unfinished

if TYPE_CHECKING:
    from gdbheap.answers.retained import Retained
    from gdbheap.answers.retained_rows import RetainedRow

__all__ = ["SHARED", "held_at", "render_retained"]

RETAINED = Column("own"), Column("address"), Column("type", True), Column("path", True)
GROUPED = Column("own"), Column("count"), Column("name", True)
SHARED = (
    "A shared mapping is unmapped when its object is freed. Its pages are freed only if no other process maps them and "
    "no file keeps them."
)
# Stands between the path of an object and the path on to what retains the same blocks.
ALL_IN = ": all in "


def render_retained(answer: Retained, style: Style, by: str) -> str:
    """Return the text of ``heap retained``: a row for each object with its path, or a row for each group."""
    if answer.address is not None:
        return join(_retained_set(answer, answer.address, style), unfinished(answer.not_examined, answer.next, style))
    if answer.not_examined:
        return join(
            _rows_of_objects(answer, style) if answer.rows else NO_HOLDER,
            unfinished(answer.not_examined, answer.next, style),
        )
    if not answer.rows:
        return style.filled("Nothing retains more than its own block.")
    if by == "object":
        return _rows_of_objects(answer, style)
    shares = _shares(answer.rows, style)
    grouped = [
        [style.size(row.retained), *shares.cells(row.retained, row.absent), style.size(row.own),
         count_text(row.count), row.type]
        for row in answer.rows
    ]  # fmt: skip
    told = style.filled(_largest_group(answer, style))
    return join(told, table((Column("retained"), *shares.columns, *GROUPED), grouped, style))


def _largest_group(answer: Retained, style: Style) -> str:
    """Return a sentence about the group that retains the most. The sentence begins with gdbheap's own words, so that no
    name begins a line."""
    first = max(answer.rows, key=lambda row: row.retained)
    size = f"{style.bytes(first.retained)}{style.of_rss(first.retained, first.absent)}"
    return f"The largest retained size belongs to {first.count:,} x {first.type}: {size}."


def _shares(rows: Sequence[RetainedRow], style: Style) -> Shares:
    return Shares(style, ((row.most, row.absent) for row in rows))


def _retained(row: RetainedRow, style: Style) -> str:
    if row.at_most is not None and not row.at_least:
        return f"at most {style.size(row.at_most)}"
    return at_least(style.size(row.retained), row.at_least)


def _rows_of_objects(answer: Retained, style: Style) -> str:
    shares = _shares(answer.rows, style)
    rows = [
        [_retained(row, style), *shares.cells(row.most, row.absent), style.size(row.own),
         "" if row.address is None else address_text(row.address), _type(row),
         held_at(row) + (f" ({style.bytes(row.shared)} of it shared)" if row.shared else "")]
        for row in answer.rows
    ]  # fmt: skip
    told = style.filled(SHARED) if any(row.shared for row in answer.rows) else ""
    shown = table((Column("retained"), *shares.columns, *RETAINED), rows, style)
    return join(style.filled(_retains_most(answer, style)), shown, told)


def _type(row: RetainedRow) -> str:
    """Return the type of a row's object.

    If the row stands for several objects, their number comes first; if it stands for no object, return the kind of the
    row.
    """
    is_one = row.address is not None or row.type in NAMED_BY_WORDS
    return row.type if is_one and row.count == 1 else f"{row.count:,} x {row.type}"


def _retains_most(answer: Retained, style: Style) -> str:
    """Return a sentence about the row that retains the most, or that may do so.

    The sentence begins with gdbheap's own words, so that no name begins a line.
    """
    first = max(answer.rows, key=lambda row: row.most)
    size = f"{_retained(first, style)}{style.of_rss(first.most, first.absent)}"
    belongs = "belongs" if first.at_most is None else "may belong"
    return f"The largest retained size {belongs} to {_named(first)}: {size}."


def _named(row: RetainedRow) -> str:
    """Return the path of a row's object with its type; for several objects, their number and type."""
    if row.address is None and row.type not in NAMED_BY_WORDS:
        return f"{row.count:,} x {row.type}"
    what = source_path(held_at(row)) or "an object"
    if row.address is None:
        return what
    path, inside, rest = what.partition(ALL_IN) if row.same else (what, "", "")
    named = f"class {path}" if row.type == "type" else f"{path} ({row.type})"
    return f"{named}{inside}{rest}"


def held_at(row: RetainedRow) -> str:
    """Return the path of a row's object, and the path from it to the innermost object that retains the same blocks.

    If the row stands for several objects, return their holders. Holders that share the object's memory are added.
    """
    way, inner = row.path or row.chain or "", row.innermost
    # A part of the object itself is not another holder.
    others = [name for name in row.other_holders if not (way and name.startswith((f"{way}[", f"{way}.")))]
    if row.at_most is not None and others:
        return f"{way}, shared with {' and '.join(others)}"
    if row.same:
        return f"{way}{ALL_IN}{_rest(row, inner)}"
    is_named = row.address is not None or row.count == 1 or row.type == "module"
    return way if is_named else " and ".join(row.other_holders) or f"many places, such as {way}"


def _rest(row: RetainedRow, inner: RetainedRow) -> str:
    """Return the path from a row's object to the innermost object that retains the same blocks.

    If no object below the row's object has a name, return "its" with the type of the innermost object.
    """
    way, to_inner = (row.path, inner.path) if row.path and inner.path else (row.chain or "", inner.chain or "")
    rest = to_inner[len(way) :].strip() if to_inner.startswith(way) else to_inner
    return f"{rest} ({inner.type})" if rest else f"its {row.same[-1].type}"


def _retained_set(answer: Retained, address: int, style: Style) -> str:
    count, size, absent = (sum(getattr(row, name) for row in answer.rows) for name in ("count", "own", "absent"))
    shares = Shares(style, [(size, absent), *((row.own, row.absent) for row in answer.rows)])
    rows = [
        [count_text(row.count), style.size(row.own), *shares.cells(row.own, row.absent), row.type]
        for row in answer.rows
    ]
    told = f"Removing the block at {address_text(address)} would free:"
    if answer.named_variable is not None:
        told = f"If nothing were left in {answer.named_variable}, this would be freed:"
    if answer.at_most is not None:
        most = style.bytes(answer.at_most)
        told = f"Removing the block at {address_text(address)} would free at most {most}, and at least this ({STALE}):"
    total = [count_text(count), style.size(size), *shares.cells(size, absent), "total"]
    columns = Column("count"), Column("bytes"), *shares.columns, Column("type", True)
    return join(style.filled(told), table(columns, rows, style, total))
