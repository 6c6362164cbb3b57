"""The text of ``heap pyobjects --by=fill``: how full each type's containers are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.fill import Fills

__all__ = ["render"]

COLUMNS = (
    Column("count"), Column("empty"), Column("shared keys"), Column("items"), Column("room"), Column("filled"),
    Column("up to half full"), Column("type", True),
)  # fmt: skip
TENTHS_OF_HALF = 5
ABOUT = (
    "Room is the number of items that a container can hold before it grows: for a list or bytearray, all items that "
    "fit into its buffer; for a dict, two thirds of its slots; for a set, three fifths of its slots. Dicts of the "
    "instances of one class share their keys and have no room of their own."
)


def render(answer: Fills, style: Style) -> str:
    """Return the text of the answer: how full all containers are, a row for each type of container, and an explanation
    of the column "room"."""
    if not answer.rows:
        return style.filled("No list, bytearray, dict or set matches.")
    rows = [
        [
            count_text(row.count), count_text(row.empty), count_text(row.sharing), count_text(row.items),
            count_text(row.room), f"{100 * row.items / row.room:.1f} %" if row.room else "-",
            count_text(sum(row.tenths[:TENTHS_OF_HALF])), row.type,
        ]
        for row in answer.rows
    ]  # fmt: skip
    return join(style.filled(_sentence(answer)), table(COLUMNS, rows, style), style.filled(ABOUT))


def _sentence(answer: Fills) -> str:
    count, items, room = (sum(getattr(row, name) for row in answer.rows) for name in ("count", "items", "room"))
    share = f" ({100 * items / room:.1f} %)" if room else ""
    containers = counted(count, "container holds", "containers hold")
    return f"{containers} {count_text(items)} of the {counted(room, 'item')} for which there is room{share}."
