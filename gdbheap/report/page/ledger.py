"""The ledger as a bar of what is resident, each part of which unfolds, and as a table with all its figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbheap.report.ledger import tree
from gdbheap.report.numbers import share_text, size_text
from gdbheap.report.page.html import FILLS, SHARE, SIZE, Column, Section, bar, details, percent, safe, table

if TYPE_CHECKING:
    from gdbheap.answers.ledger import Ledger, Line

__all__ = ["ledger_section"]

# Of lines inside of one another: those of a file may be anything.
DEEPEST = 6
COLUMNS = (
    Column("id", "line"), Column("name", "what"), Column("resident", "resident", SIZE),
    Column("share", "% of RSS", SHARE), Column("whole", "whole pages", SIZE), Column("swapped", "swapped", SIZE),
    Column("virtual", "virtual", SIZE), Column("state", "state"),
)  # fmt: skip


def ledger_section(answer: Ledger, most: int) -> Section:
    """Whose the memory is. Where nobody knows what is resident, the bar is of the address space of what is no file."""
    roots = sorted((line for line in answer.ledger if line.parent is None), key=_size, reverse=True)
    whole = sum(map(_size, roots))
    told = "; ".join(_told(line, whole) for line in roots if _size(line))
    body = bar([(_told(line, whole), _size(line)) for line in roots], told)
    body += "".join(_unfolded(line, answer.ledger, whole, min(place, FILLS - 1)) for place, line in enumerate(roots))
    return Section("ledger", "Where the memory went", body + details("All lines, as a table", _table(answer, most)))


def _size(line: Line) -> int:
    return (line.virtual if line.resident is None else line.resident) or 0


def _told(line: Line, whole: int) -> str:
    return f"{line.name}: {size_text(_size(line))}, {share_text(_size(line), whole)} %"


def _unfolded(line: Line, lines: Sequence[Line], whole: int, fill: int, depth: int = 1) -> str:
    """A line with its children inside, the largest first; what has none does not unfold."""
    size = _size(line)
    rect = f'<rect class="f{fill}" width="{percent(size, whole)}" height="10"/>'
    head = (
        f'<span class="name">{safe(line.name)}</span><span class="size" data-line="{safe(line.id)}" data-v="{size}">'
        f'{size_text(size)}</span><span class="part">{share_text(size, whole)} %</span>'
        f'<svg class="small" width="100%" height="10" aria-hidden="true">{rect}</svg>'
    )
    inside = [child for child in lines if child.parent == line.id] if depth < DEEPEST else []
    if not inside:
        return f'<div class="line">{head}</div>\n'
    children = (_unfolded(child, lines, whole, fill, depth + 1) for child in sorted(inside, key=_size, reverse=True))
    return f'<details class="line"><summary>{head}</summary>\n<div class="inside">{"".join(children)}</div></details>\n'


def _table(answer: Ledger, most: int) -> str:
    whole = answer.rss.bytes
    rows = [
        (line.id, line.name, line.resident, None if line.resident is None else (line.resident, whole or 0),
         line.whole, line.swapped, line.virtual, line.state)
        for line, _depth in tree(answer.ledger)
    ]  # fmt: skip
    return table("ledger-lines", "Every line of the ledger; children add up to their parent", COLUMNS, rows, most)
