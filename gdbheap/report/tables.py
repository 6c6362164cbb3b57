"""Tables for people, laid out by tabulate: a title line, a rule, the rows, a rule, and a total that adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gdbheap.errors import one_line
from gdbheap.report.style import Style

__all__ = ["SHARE", "Column", "join", "left_over", "table"]

Row = Sequence[str]
CELL_LIMIT = 300
CUT = ">"
BLANK = "\u2800"  # tabulate strips every kind of white space; this one only looks like it


@dataclass(frozen=True)
class Column:
    """A column's title; numbers are right-aligned (``left`` False), text is left-aligned."""

    title: str
    left: bool = False


SHARE = Column("%RSS")
"""The share of RSS: left out of every table of a target whose RSS is not known. A core knows private memory only."""
PRIVATE_SHARE = Column("%private")


def table(columns: Sequence[Column], rows: Sequence[Row], style: Style, total: Row | None = None) -> str:
    """The lines of a table, each cut to ``style.width``; ``total`` is one more row below a second rule."""
    kept = [number for number, column in enumerate(columns) if column is not SHARE or style.rss]
    body = [[_cell(row[number]) for number in kept] for row in ([*rows, total] if total is not None else rows)]
    titled = [PRIVATE_SHARE if column is SHARE and style.private else column for column in columns]
    lines = _laid_out([titled[number] for number in kept], body)
    if total is not None:
        lines.insert(len(lines) - 1, lines[1])
    lines[0] = style.heading(_cut(lines[0], style))
    return "\n".join([lines[0], *(_cut(line, style) for line in lines[1:])])


def _laid_out(columns: Sequence[Column], body: list[list[str]]) -> list[str]:
    """The title, the rule and one line a row. Without rows tabulate ignores the alignment it is given."""
    align = ["left" if column.left else "right" for column in columns]
    # Imported here: it takes as long to load as all of gdbheap, and JSON has no tables.
    from tabulate import tabulate

    text = tabulate(
        body,
        headers=[column.title for column in columns],
        tablefmt="simple",
        disable_numparse=True,
        colalign=align if body else None,
    )
    return [line.rstrip() for line in text.splitlines()]


def _cell(text: str) -> str:
    """One cell on one line; leading blanks, which indent a tree, stay."""
    indent = len(text) - len(text.lstrip(" "))
    return BLANK * indent + one_line(text, CELL_LIMIT)


def _cut(line: str, style: Style) -> str:
    plain = line.replace(BLANK, " ")
    if style.width is None or len(plain) <= style.width:
        return plain
    return plain[: max(style.width - 1, 0)] + CUT


def join(*parts: str) -> str:
    """The parts of a report that are not empty, a blank line between them."""
    return "\n\n".join(part for part in parts if part)


def left_over(whole: object, rows: Sequence[object], names: Sequence[str]) -> list[int]:
    """What the sums of a whole are more than those of the rows that are shown, for each of these fields."""
    return [getattr(whole, name) - sum(getattr(row, name) for row in rows) for name in names]
