"""The HTML elements of pages. Strings from a target are escaped here, or where a picture is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from gdbheap.dataclass import dataclass
from gdbheap.errors import one_line, own_line
from gdbheap.report.text.numbers import UNKNOWN, count_text, share_text, size_text
from gdbheap.text import IN_SHELL, as_typed

__all__ = [
    "ADDRESS", "COUNT", "FILLS", "SHARE", "SIGNED", "SIZE", "TEXT", "Column", "Section", "TableRow", "bar", "details",
    "listed", "paragraph", "percent", "refused", "safe", "table", "told",
]  # fmt: skip

SIZE, SIGNED, COUNT, ADDRESS, SHARE, TEXT = "size", "signed", "count", "address", "share", "text"
LONGEST = 300
# The number of parts of a bar that have a colour of their own. All further parts have the last colour.
FILLS = 8

TableRow = Sequence[Any]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    ``key``: its key in JSON.
    ``title``: its heading.
    ``kind``: the kind of its values, which decides how they are formatted.
    """

    key: str
    title: str
    kind: str = TEXT


@dataclass(frozen=True)
class Section:
    """A section of a page.

    ``id``: the anchor of links to it.
    ``title``: its heading.
    ``body``: its markup.
    ``why``: the reason why the section has no content, "" if it has content.
    """

    id: str
    title: str
    body: str
    why: str = ""


def safe(text: object, limit: int = LONGEST) -> str:
    """Return a text on one line, of at most ``limit`` characters, escaped for use in elements and attributes."""
    return escape(own_line(text, limit))


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph; "" for an empty text. gdbheap's commands in it are written as in a shell."""
    return f"<p{_class(kind)}>{safe(as_typed(text, IN_SHELL), 4000)}</p>\n" if text else ""


def listed(lines: Iterable[str], kind: str = "") -> str:
    """Return a list of sentences; "" if there are none."""
    items = "".join(f"<li>{safe(line, 2000)}</li>\n" for line in lines)
    return f"<ul{_class(kind)}>\n{items}</ul>\n" if items else ""


def details(summary: str, body: str, opened: bool = False) -> str:
    """Return an element that unfolds on a click; "" if ``body`` is empty.

    ``summary``: plain text that is always visible.
    ``body``: markup.
    ``opened``: whether the element is unfolded at first.
    """
    return f"<details{' open' if opened else ''}><summary>{safe(summary)}</summary>\n{body}</details>\n" if body else ""


def refused(id: str, title: str, why: str) -> Section:
    """Return a section that only says why it has no content."""
    return Section(id, title, paragraph(f"This section is missing: {why}.".replace("..", "."), "why"), why)


def told(value: Any, kind: str) -> str:
    """Return a value as text for people. ``kind``: the kind of the value, as in ``Column``."""
    if value is None:
        # An empty address means that the row stands for several objects; an empty text means that there is no text.
        return "" if kind in (TEXT, ADDRESS) else UNKNOWN
    if kind == SIZE:
        return size_text(value)
    if kind == SIGNED:
        return ("+" if value > 0 else "") + size_text(value)
    if kind == ADDRESS:
        return f"{value:#x}"
    if kind == SHARE:
        return share_text(*value)
    return count_text(value) if kind == COUNT else one_line(value, LONGEST)


def table(
    id: str,
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[TableRow],
    most: int,
    total: TableRow | None = None,
    count: int | None = None,
) -> str:
    """Return a table with at most ``most`` of the rows; "" if there are no rows. ``total``: one more row at the foot.

    ``count``: how many rows there are, if ``rows`` has only some of them. Each numeric cell has its exact value in the
    attribute ``data-v``.
    """
    if not rows:
        return ""
    shown, count = rows[:most], len(rows) if count is None else count
    heads = "".join(
        f'<th scope="col" data-k="{column.key}"{_side(column)}>{safe(column.title)}</th>' for column in columns
    )
    body = "\n".join(_row(columns, row) for row in shown)
    foot = "" if total is None else f"<tfoot>{_row(columns, total)}</tfoot>\n"
    left = count - len(shown)
    more = f'<p class="more">{count_text(left)} more are not shown.</p>\n' if left > 0 else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{id}-caption">\n'
        f'<table id="{id}">\n<caption id="{id}-caption">{safe(caption)}</caption>\n<thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n{foot}</table>\n</div>\n{more}"
    )


def bar(parts: Sequence[tuple[str, int]], told: str) -> str:
    """Return an SVG bar over the full width, divided into parts; "" if all sizes are 0.

    ``parts``: the tooltip and the size of each part. ``told``: the description for screen readers (``aria-label``).
    """
    whole, at, drawn = sum(size for _text, size in parts), 0, []
    for place, (text, size) in enumerate(parts):
        if size:
            where = f'x="{percent(at, whole)}" width="{percent(size, whole)}" height="100%"'
            rect = f'<rect class="f{min(place, FILLS - 1)}" {where}/>'
            drawn.append(f"<g><title>{safe(text)}</title>{rect}</g>")
        at += size
    head = f'<svg class="bar" width="100%" height="36" role="img" aria-label="{safe(told, 2000)}">'
    return f"{head}{''.join(drawn)}</svg>\n" if whole else ""


def percent(part: int, whole: int) -> str:
    """Return ``part`` as a percentage of ``whole``, for a length in a picture."""
    return f"{100 * part / max(whole, 1):.3f}%"


def _row(columns: Sequence[Column], row: TableRow) -> str:
    return f"<tr>{''.join(_cell(column, value) for column, value in zip(columns, row))}</tr>"


def _cell(column: Column, value: Any) -> str:
    if column.kind == TEXT:
        return f"<td>{escape(told(value, TEXT))}</td>"
    if isinstance(value, str):
        return f'<td class="n">{escape(one_line(value))}</td>'
    text = escape(told(value, column.kind))
    exact = value[0] if column.kind == SHARE and value is not None else value
    return f'<td class="n" data-v="{"" if exact is None else exact}">{text}</td>'


def _side(column: Column) -> str:
    return "" if column.kind == TEXT else ' class="n"'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
