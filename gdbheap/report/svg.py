"""``heap map`` as a scalable picture: a bar for each cell, filled from below by what its bytes are."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from gdbheap.report.heap_map import LOOKS, shares
from gdbheap.report.style import Style

if TYPE_CHECKING:
    from gdbheap.answers.heap_map import Cell, Group, HeapMap

__all__ = ["picture"]

ACROSS, CELL_WIDTH, CELL_HEIGHT, LINE, MARGIN, LABEL = 128, 8, 16, 18, 16, 116
KINDS = ("used", "free", "top", "other", "gone", "top gone", "nothing")
STEPS = 8
FONT = 'font-family="sans-serif" font-size="12"'


def picture(answer: HeapMap, title: str) -> str:
    """The map as one SVG document, with a legend."""
    body: list[str] = [_text(MARGIN, MARGIN + 12, title), *_legend(answer, MARGIN + LINE + 12)]
    at = MARGIN + 3 * LINE
    for group in answer.groups:
        drawn, at = _group(group, at)
        body += drawn
    width = 2 * MARGIN + LABEL + ACROSS * CELL_WIDTH
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {at}" width="{width}" height="{at}" {FONT}>'
    return "\n".join([head, f'<rect width="{width}" height="{at}" fill="#ffffff"/>', *body, "</svg>", ""])


def _text(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}">{escape(text, quote=False)}</text>'


def _legend(answer: HeapMap, y: int) -> Iterator[str]:
    yield _text(MARGIN, y, f"One bar is {Style().bytes(answer.cell)}:")
    for number, kind in enumerate(KINDS):
        x = MARGIN + LABEL + 40 + number * 140
        yield f'<rect x="{x}" y="{y - 10}" width="10" height="12" fill="{LOOKS[kind].svg}"/>'
        yield _text(x + 14, y, LOOKS[kind].meaning)


def _group(group: Group, at: int) -> tuple[list[str], int]:
    """The drawing of a group whose title is at ``at``, and where the next one begins."""
    style = Style()
    resident = "" if group.resident is None else f", {style.bytes(group.resident)} resident"
    body = [_text(MARGIN, at + 12, f"{group.name}: {style.bytes(group.end - group.start)}{resident}")]
    at += LINE
    for first in range(0, len(group.cells), ACROSS):
        cells = group.cells[first : first + ACROSS]
        body.append(_text(MARGIN, at + 12, f"{cells[0].start:#x}"))
        body += _row(cells, at)
        at += CELL_HEIGHT + 2
    return body, at + LINE // 2


def _row(cells: list[Cell], at: int) -> Iterator[str]:
    """The bars of a row; neighbours that look the same are drawn as one."""
    x = MARGIN + LABEL
    for heights, same in groupby(cells, key=_heights):
        width = len(list(same)) * CELL_WIDTH
        bottom = at + CELL_HEIGHT
        for kind, steps in zip(KINDS, heights):
            height = steps * CELL_HEIGHT // STEPS
            bottom -= height
            if height:
                yield f'<rect x="{x}" y="{bottom}" width="{width}" height="{height}" fill="{LOOKS[kind].svg}"/>'
        x += width


def _heights(cell: Cell) -> tuple[int, ...]:
    """How many eighths of the bar each kind fills, from below; together all eight."""
    found = shares(cell)
    whole = sum(found.values()) or 1
    heights, below, filled = [], 0, 0
    for kind in KINDS:
        below += found[kind]
        upto = round(below * STEPS / whole)
        heights.append(upto - filled)
        filled = upto
    return tuple(heights)
