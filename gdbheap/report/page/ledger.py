"""The page's section with the ledger: resident memory as a bar, its parts as lines that unfold, and all figures as a
table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.page.html import FILLS, SHARE, SIZE, Column, Section, bar, details, percent, safe, table
from gdbheap.report.text.numbers import share_text, size_text

if TYPE_CHECKING:
    from gdbheap.first_page.ledger import Ledger, Line

__all__ = ["ledger_section"]

# The most children that are drawn below a line (an allocator may have many arenas), and the most levels. A file may
# have more; the table has all of them.
MAX_CHILDREN, DEEPEST = 100, 6
COLUMNS = (
    Column("id", "line"), Column("name", "what"), Column("resident", "resident", SIZE),
    Column("share", "% of RSS", SHARE), Column("whole", "whole pages", SIZE), Column("swapped", "swapped", SIZE),
    Column("virtual", "virtual", SIZE), Column("state", "state"),
)  # fmt: skip


def ledger_section(answer: Ledger, most: int) -> Section:
    """Return the section with the ledger, of at most ``most`` rows. If a line's residency is unknown, its address space
    is drawn instead.
    """
    below: dict[str | None, list[Line]] = {}
    for line in answer.ledger:
        below.setdefault(line.parent, []).append(line)
    roots = sorted(below.pop(None, []), key=_size, reverse=True)[:MAX_CHILDREN]
    whole = sum(map(_size, roots))
    told = "; ".join(_told(line, whole) for line in roots if _size(line))
    body = bar([(_told(line, whole), _size(line)) for line in roots], told)
    body += "".join(_unfolded(line, below, whole, min(place, FILLS - 1)) for place, line in enumerate(roots))
    return Section("ledger", "Where the memory went", body + details("All lines, as a table", _table(answer, most)))


def _size(line: Line) -> int:
    return (line.virtual if line.resident is None else line.resident) or 0


def _told(line: Line, whole: int) -> str:
    return f"{line.name}: {size_text(_size(line))}, {share_text(_size(line), whole)} %"


def _unfolded(line: Line, below: dict[str | None, list[Line]], whole: int, fill: int, depth: int = 1) -> str:
    """Return a line with its children inside, the largest first. A line without children cannot be unfolded.

    Children are removed from ``below``, so that a file in which lines contain each other does not cause an endless
    recursion.
    """
    size = _size(line)
    rect = f'<rect class="f{fill}" width="{percent(size, whole)}" height="10"/>'
    head = (
        f'<span class="name">{safe(line.name)}</span><span class="size" data-line="{safe(line.id)}" data-v="{size}">'
        f'{size_text(size)}</span><span class="part">{share_text(size, whole)} %</span>'
        f'<svg class="small" width="100%" height="10" aria-hidden="true">{rect}</svg>'
    )
    inside = sorted(below.pop(line.id, []), key=_size, reverse=True)
    if not inside or depth == DEEPEST:
        return f'<div class="line">{head}</div>\n'
    children = "".join(_unfolded(child, below, whole, fill, depth + 1) for child in inside[:MAX_CHILDREN])
    return f'<details class="line"><summary>{head}</summary>\n<div class="inside">{children}</div></details>\n'


def _table(answer: Ledger, most: int) -> str:
    whole = answer.rss.bytes
    rows = [
        (line.id, line.name, line.resident, None if line.resident is None else (line.resident, whole or 0),
         line.whole, line.swapped, line.virtual, line.state)
        for line in answer.ledger
    ]  # fmt: skip
    return table(
        "ledger-lines", "Every line of the ledger; the lines below a parent line add up to it", COLUMNS, rows, most
    )
