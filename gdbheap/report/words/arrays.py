"""Texts about DataFrames, tables and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbheap.errors import one_line
from gdbheap.report.text.numbers import address_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.arrays import ArrayColumn, ArrayRow, InArray, KeptBy
    from gdbheap.answers.shared_out import Wide

__all__ = ["column_text", "in_array_text", "render_arrays", "shape_text"]

ARRAYS = (
    Column("bytes"), SHARE, Column("retained"), Column("shape"), Column("address"), Column("what", True),
    Column("dtype", True), Column("path", True),
)  # fmt: skip
SHOWN_COLUMNS = 6
NAME_LENGTH = 60
TIMES = " x "
CPU, META = "cpu", "meta"


def shape_text(shape: Sequence[int], dtype: str | None = None) -> str:
    """Return a shape, such as ``(1,000 x 3)``. If there is a dtype, it comes first."""
    sizes = TIMES.join(f"{size:,}" for size in shape)
    return f"{dtype} ({sizes})" if dtype else f"({sizes})"


def column_text(column: Wide, style: Style) -> str:
    """Return a column's name, dtype and size in a few words."""
    size = "" if column.bytes is None else f" {style.bytes(column.bytes)}"
    return f"column {one_line(column.name or '?', NAME_LENGTH)} {column.dtype}{size}"


def render_arrays(rows: Sequence[ArrayRow], count: int, size: int, absent: int, style: Style) -> str:
    """Return a sentence about all arrays, and a table with a row for each array and, below it, one for each of its
    largest columns.

    ``count``, ``size``, ``absent``: the number of all arrays, their bytes, and how many of these bytes are not
    resident.
    """
    shown = [cells for row in rows for cells in (_row(row, style), *_columns(row, style))]
    told = (
        f"{counted(count, 'DataFrame, table or array has', 'DataFrames, tables and arrays have')} {style.bytes(size)} "
        f"of values{style.of_rss(size, absent)}. Memory that several of them share is counted once."
    )
    return join(style.filled(told), table(ARRAYS, shown, style))


def _row(row: ArrayRow, style: Style) -> list[str]:
    name = f" {one_line(row.name, NAME_LENGTH)}" if row.name is not None else ""
    notes = []
    if row.repeated:
        notes.append(f"{style.bytes(row.repeated)} shared with rows above or below")
    if row.device is not None:
        notes += _of_tensor(row, style)
    if row.base is not None:
        notes.append(f"memory provided by {row.base}")
    if row.kept_by is not None:
        notes.append(_kept_by(row.kept_by, style))
    elif row.views:
        notes.append(counted(row.views, "view"))
    if row.deep is not None and row.deep != row.bytes:
        notes.append(f"{style.bytes(row.deep)} including objects")
    more = f" ({', '.join(notes)})" if notes else ""
    return [
        *_sizes(row.bytes, style, row.absent), "" if row.retained is None else style.size(row.retained),
        TIMES.join(f"{size:,}" for size in row.shape), address_text(row.address),
        f"{row.what}{name}", row.dtype or "", f"{row.path or '(unreachable)'}{more}",
    ]  # fmt: skip


def _kept_by(views: KeptBy, style: Style) -> str:
    """Return a note about views that alone keep an array alive. They show only a small part of it, so a copy of that
    part would free the rest.
    """
    return (
        f"kept alive only by {counted(views.count, 'view')} of {style.bytes(views.shown)} ({views.type}): copy the "
        "viewed part"
    )


def _of_tensor(row: ArrayRow, style: Style) -> list[str]:
    """Return notes about a tensor whose values are only a part of its storage, or lie on another device."""
    own = "?" if row.nbytes is None else style.bytes(row.nbytes)
    if row.device != CPU:
        return ["no values (meta device)" if row.device == META else f"{own} on {row.device or ''}, not in this memory"]
    if row.bytes is None or not row.nbytes:
        return []
    if not row.bytes:
        return [f"its storage is empty: the values would take {own}"]
    return [f"the values take {own} of the storage"] if row.nbytes < row.bytes else []


def _columns(row: ArrayRow, style: Style) -> list[list[str]]:
    """Return rows for the largest columns, and one row for all other columns."""
    found = sorted(row.columns, key=lambda column: -(column.bytes or 0))
    cells = [_column(column, style) for column in found[:SHOWN_COLUMNS]]
    left = found[SHOWN_COLUMNS:]
    if left:
        sizes = [column.bytes for column in left]
        size = None if None in sizes else sum(size for size in sizes if size is not None)
        cells.append([*_sizes(size, style), "", "", "", f"  ({counted(len(left), 'more column')})", "", ""])
    return cells


def _column(column: ArrayColumn, style: Style) -> list[str]:
    name = "" if column.name is None else f" {one_line(column.name, NAME_LENGTH)}"
    deep = "" if column.deep in (None, column.bytes) else f"{style.bytes(column.deep or 0)} including objects"
    place = "" if column.address is None else address_text(column.address)
    return [*_sizes(column.bytes, style), "", "", place, f"  {column.what}{name}", column.dtype, deep]


def _sizes(size: int | None, style: Style, absent: int = 0) -> list[str]:
    return ["?", ""] if size is None else [style.size(size), style.share(size, absent)]


def in_array_text(found: InArray, style: Style) -> str:
    """Return the text that names the column of a table, or the array, to which an address belongs."""
    name = "" if found.name is None else f" {one_line(found.name, NAME_LENGTH)}"
    own = f"{found.what}{name} {shape_text(found.shape, found.dtype)}"
    place = f"at {address_text(found.address)}"
    return (
        f"{own} {place}" if found.what == found.of else f"{own} of {found.of} {shape_text(found.whole_shape)} {place}"
    )
