"""Tables for people: a title line, a rule, the rows, a rule, and a total that adds up."""

from __future__ import annotations

from gdbheap.errors import one_line
from gdbheap.report.style import Style

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = Sequence[str]

__all__ = ["SHARE", "Column", "join", "left_over", "table"]

CELL_LIMIT = 300
CUT = ">"
BETWEEN, LEAST = "  ", 2


class Column:
    """A column's title; numbers are right-aligned (``left`` False), text is left-aligned."""

    __slots__ = ("left", "title")

    def __init__(self, title: str, left: bool = False) -> None:
        self.title, self.left = title, left


SHARE = Column("%RSS")
"""The share of RSS: left out of every table of a target whose RSS is not known. A core knows private memory only."""
PRIVATE_SHARE = Column("%private")


def table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    style: Style,
    total: Row | None = None,
    kinds: Sequence[str | None] = (),
) -> str:
    """The lines of a table, each cut to ``style.width``; ``total`` is one more row below a second rule. ``kinds``: what
    the rows are of, which colours their first cells."""
    kept = [number for number, column in enumerate(columns) if column is not SHARE or style.rss]
    body = [[_cell(row[number]) for number in kept] for row in ([*rows, total] if total is not None else rows)]
    titled = [PRIVATE_SHARE if column is SHARE and style.private else column for column in columns]
    lines = _laid_out([titled[number] for number in kept], body)
    if total is not None:
        lines.insert(len(lines) - 1, lines[1])
    lines[0] = style.heading(_cut(lines[0], style))
    lines[1:] = [_cut(line, style) for line in lines[1:]]
    if style.bold:
        for place, (cells, kind) in enumerate(zip(body, kinds), 2):
            lines[place] = _coloured(lines[place], cells[0], kind, style)
    return "\n".join(lines)


def _coloured(line: str, first: str, kind: str | None, style: Style) -> str:
    """A line with its first cell in colour, but for the blanks around it."""
    start = len(line) - len(line.lstrip(" ")) if first.strip() else 0
    end = start + len(first.strip())
    return f"{line[:start]}{style.coloured(line[start:end], kind)}{line[end:]}"


def _laid_out(columns: Sequence[Column], body: list[list[str]]) -> list[str]:
    """The title, the rule and one line a row; a column is at least a little wider than its title."""
    cells = zip(*body) if body else ((),) * len(columns)
    widths = [max(len(one.title) + LEAST, *map(len, cell), 0) for one, cell in zip(columns, cells)]
    pads = [str.ljust if column.left else str.rjust for column in columns]
    rows = [[column.title for column in columns], ["-" * width for width in widths], *body]
    return [BETWEEN.join(pad(text, width) for pad, text, width in zip(pads, row, widths)).rstrip() for row in rows]


def _cell(text: str) -> str:
    """One cell on one line; leading blanks, which indent a tree, stay."""
    indent = len(text) - len(text.lstrip(" "))
    return " " * indent + one_line(text, CELL_LIMIT)


def _cut(line: str, style: Style) -> str:
    if style.width is None or len(line) <= style.width:
        return line
    return line[: max(style.width - 1, 0)] + CUT


def join(*parts: str) -> str:
    """The parts of a report that are not empty, a blank line between them."""
    return "\n\n".join(part for part in parts if part)


def left_over(whole: object, rows: Sequence[object], names: Sequence[str]) -> list[int]:
    """What the sums of a whole are more than those of the rows that are shown, for each of these fields."""
    return [getattr(whole, name) - sum(getattr(row, name) for row in rows) for name in names]
