"""Print tables for people: a line of titles, a rule, the rows, a rule, and a total that is the sum of the rows."""

from __future__ import annotations

from gdbheap.errors import own_line
from gdbheap.report.text.display_width import first_columns, last_columns, padded, width_of
from gdbheap.report.text.style import Style

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Row = Sequence[str]

__all__ = ["SHARE", "Column", "Shares", "join", "left_over", "table"]

CELL_LIMIT = 300
CUT = ">"
BETWEEN, LEAST = "  ", 2
# The steps that fit a table into a narrow terminal.
#
# First shorten texts to SHORT characters, then drop these columns, the first ones first, then shorten texts to SHORTEST
# characters.
LEAST_IMPORTANT = (
    "virtual", "swapped", "used chunks", "free chunks", "fast", "own", "arena", "allocator", "each", "kind", "blocks",
    "count", "%system",
)  # fmt: skip
SHORT, SHORTEST = 28, 12
# Columns that are left out if they have the same value in all rows. A line below the table names the value, unless it
# is one of NO_VALUES.
DROPPED_IF_SAME = ("allocator", "arena", "swapped", "swap", "group", "mapped")
NO_VALUES = ("", "-", "0", "0 B")


class Column:
    """A column of a table. Text is left-aligned (``left``), numbers are right-aligned."""

    __slots__ = ("left", "title")

    def __init__(self, title: str, left: bool = False) -> None:
        self.title, self.left = title, left


SHARE = Column("%RSS")
"""The column with the share of RSS. It is left out if the target's RSS is unknown. For a core it is the share of
private memory."""
PRIVATE_SHARE = Column("%private")
RESIDENT = Column("resident")


class Shares:
    """The cells that show each row's share of RSS. Only resident bytes count.

    If bytes that are not resident change the printed share of a row, the table also has a column of resident bytes.
    ``sizes``: for each row and for the total, all bytes, and how many of them are not resident.
    """

    __slots__ = ("_has_resident", "_style")

    def __init__(self, style: Style, sizes: Iterable[tuple[int | None, int]]) -> None:
        self._style = style
        self._has_resident = any(style.differs(size, absent) for size, absent in sizes)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns to use instead of SHARE: the share of RSS, after a column of resident bytes if that is needed."""
        return (RESIDENT, SHARE) if self._has_resident else (SHARE,)

    def cells(self, size: int | None, absent: int = 0) -> list[str]:
        """Return a row's cells for ``columns``. ``absent``: how many of the bytes are not resident."""
        share = self._style.share(size, absent)
        if not self._has_resident:
            return [share]
        return ["?" if size is None or share == "?" else self._style.size(size - absent), share]

    @property
    def blank(self) -> list[str]:
        """Empty cells for ``columns``, for a row without a share."""
        return [""] * len(self.columns)


def table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    style: Style,
    total: Row | None = None,
    kinds: Sequence[str | None] = (),
) -> str:
    """Return the lines of a table, at most as wide as ``style.width``.

    ``total``: one more row, below a second rule. ``kinds``: for each row the kind that sets the colour of its first
    cell.
    """
    kept = [number for number, column in enumerate(columns) if column is not SHARE or style.rss]
    body = [[_cell(row[number]) for number in kept] for row in ([*rows, total] if total is not None else rows)]
    titled = [PRIVATE_SHARE if column is SHARE and style.private else column for column in columns]
    titled = [titled[number] for number in kept]
    titled, body, same = _without_same(titled, body, len(rows))
    if style.width is not None:
        titled, body = _fitted(titled, body, len(rows), style)
    lines = _laid_out(titled, body)
    if total is not None:
        lines.insert(len(lines) - 1, lines[1])
    lines[0] = style.heading(_cut(lines[0], style))
    lines[1:] = [_cut(line, style) for line in lines[1:]]
    if style.bold:
        for place, (cells, kind) in enumerate(zip(body, kinds), 2):
            lines[place] = _coloured(lines[place], cells[0], kind, style)
    return "\n".join([*lines, *([style.filled(f"In every row: {', '.join(same)}.")] if same else [])])


def _without_same(
    columns: list[Column], body: list[list[str]], count: int
) -> tuple[list[Column], list[list[str]], list[str]]:
    """Return the columns and the cells without columns that have the same value in all rows.

    Only columns of DROPPED_IF_SAME are left out; their values are also returned, as text. A table of one row keeps all
    columns.
    """
    values = [{row[number] for row in body} - {""} for number in range(len(columns))]
    is_same = [column.title in DROPPED_IF_SAME and len(own) <= 1 for column, own in zip(columns, values)]
    if count < 2 or not any(is_same):
        return columns, body, []
    kept = [number for number, same in enumerate(is_same) if not same]
    told = [
        f"{column.title} {value}"
        for column, own, same in zip(columns, values, is_same)
        for value in own
        if same and value not in NO_VALUES
    ]
    return [columns[one] for one in kept], [[row[one] for one in kept] for row in body], told


def _coloured(line: str, first: str, kind: str | None, style: Style) -> str:
    """Return a line of a table with its first cell in colour. Blanks around the cell's text stay plain."""
    start = len(line) - len(line.lstrip(" ")) if first.strip() else 0
    end = start + len(first.strip())
    return f"{line[:start]}{style.coloured(line[start:end], kind)}{line[end:]}"


def _fitted(
    columns: list[Column], body: list[list[str]], count: int, style: Style
) -> tuple[list[Column], list[list[str]]]:
    """Return the columns and the cells so that they fit the width.

    The least important columns are left out, and texts are shortened in the middle. ``count``: the number of rows
    without the total.
    """
    width, widths = style.width or 0, _widths(columns, body)
    if _whole(widths) <= width:
        return columns, body
    least, kept = _shortened(columns, widths, SHORT), list(range(len(columns)))
    for number in _expendable(columns, body, count):
        if _whole(least[one] for one in kept) <= width:
            break
        kept.remove(number)
    columns, widths = [columns[one] for one in kept], [widths[one] for one in kept]
    limit = max(widths, default=0)
    while limit > SHORTEST and _whole(_shortened(columns, widths, limit)) > width:
        limit -= 1
    mark = ".." if style.ascii else "…"
    return columns, [
        [_shorter(row[one], limit, mark) if column.left else row[one] for one, column in zip(kept, columns)]
        for row in body
    ]


def _shortened(columns: list[Column], widths: list[int], limit: int) -> list[int]:
    """Return the widths of the columns if no text may be longer than ``limit``."""
    return [min(one, limit) if column.left else one for one, column in zip(widths, columns)]


def _whole(widths: Iterable[int]) -> int:
    """Return the width of a line of the table, the gaps between columns included."""
    known = list(widths)
    return sum(known) + len(BETWEEN) * (len(known) - 1)


def _expendable(columns: list[Column], body: list[list[str]], count: int) -> list[int]:
    """Return the indices of the columns that may be dropped: first those with the same value in every row, then the
    least important ones."""
    same = [number for number in range(1, len(columns)) if count > 1 and _is_same([row[number] for row in body], count)]
    ranks = {title: rank for rank, title in enumerate(LEAST_IMPORTANT)}
    known = [number for number, column in enumerate(columns) if number and column.title in ranks]
    return same + sorted(set(known) - set(same), key=lambda number: ranks[columns[number].title])


def _is_same(cells: list[str], count: int) -> bool:
    return len(set(cells[:count])) == 1 and set(cells[count:]) <= {"", cells[0]}


def _shorter(text: str, limit: int, mark: str) -> str:
    """Return a text shortened to ``limit`` columns. More of its end is kept than of its beginning."""
    if width_of(text) <= limit:
        return text
    head = (limit - len(mark)) // 3
    return first_columns(text, head) + mark + last_columns(text, limit - len(mark) - head)


def _widths(columns: Sequence[Column], body: list[list[str]]) -> list[int]:
    """Return the width of each column: the width of its widest text, and at least LEAST more than the width of its
    title.
    """
    cells = zip(*body) if body else ((),) * len(columns)
    return [max(len(one.title) + LEAST, *map(width_of, cell), 0) for one, cell in zip(columns, cells)]


def _laid_out(columns: Sequence[Column], body: list[list[str]]) -> list[str]:
    """Return the line of titles, the rule, and one line for each row."""
    widths = _widths(columns, body)
    rows = [[column.title for column in columns], ["-" * width for width in widths], *body]
    sides = [column.left for column in columns]
    return [BETWEEN.join(map(padded, row, widths, sides)).rstrip() for row in rows]


def _cell(text: str) -> str:
    """Return a cell's text on one line. Blanks at its beginning stay, because they indent a tree."""
    indent = len(text) - len(text.lstrip(" "))
    return " " * indent + own_line(text, CELL_LIMIT)


def _cut(line: str, style: Style) -> str:
    if style.width is None or width_of(line) <= style.width:
        return line
    return first_columns(line, style.width - 1) + CUT


def join(*parts: str) -> str:
    """Join the parts of a report that are not empty, with a blank line between them."""
    return "\n\n".join(part for part in parts if part)


def left_over(whole: object, rows: Sequence[object], names: Sequence[str]) -> list[int]:
    """Return, for each field, its value in ``whole`` minus its sum over the shown rows."""
    return [getattr(whole, name) - sum(getattr(row, name) for row in rows) for name in names]
