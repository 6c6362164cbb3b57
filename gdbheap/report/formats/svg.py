"""Draw the answer of ``heap map`` as an SVG picture.

Each cell is a bar, which is filled from below by kind of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from gdbheap.report.text.style import Style
from gdbheap.report.words.heap_map import LOOKS, shares
from gdbheap.text import printable

if TYPE_CHECKING:
    from gdbheap.answers.heap_map import Cell, HeapMap, MapGroup

__all__ = ["bars", "document", "heights", "picture", "text"]

ACROSS, CELL_WIDTH, CELL_HEIGHT, LINE, MARGIN, LABEL = 128, 8, 16, 18, 16, 116
BELOW_LEGEND = MARGIN + 4 * LINE
KINDS = ("used", "free", "top", "other", "gone", "top gone", "nothing")
# The kinds of the legend stand side by side, each in this width.
LEGEND_WIDTH = (LABEL + ACROSS * CELL_WIDTH) // len(KINDS)
STEPS = 8
FONT = 'font-family="sans-serif" font-size="12"'


def picture(answer: HeapMap, title: str) -> str:
    """Return the map as one SVG document, with a legend."""
    body: list[str] = []
    at = BELOW_LEGEND
    for group in answer.rows:
        drawn, at = _group(group, at)
        body += drawn
    return document(title, answer.cell, body, at)


def document(title: str, cell: int, body: Iterable[str], at: int) -> str:
    """Return an SVG document whose height is ``at``, with the title, the legend and the body.

    ``body``: elements, which must begin below the legend; ``cell``: the bytes of one cell.
    """
    width = 2 * MARGIN + LABEL + ACROSS * CELL_WIDTH
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {at}" width="{width}" height="{at}" {FONT}>'
    top = [text(MARGIN, MARGIN + 12, title), *_legend(cell, MARGIN + LINE + 12)]
    return "\n".join([head, f'<rect width="{width}" height="{at}" fill="#ffffff"/>', *top, *body, "</svg>", ""])


def text(x: int, y: int, words: str) -> str:
    """Return a text element whose left end is at (x, y)."""
    return f'<text x="{x}" y="{y}">{escape(printable(words), quote=False)}</text>'


def _legend(cell: int, y: int) -> Iterator[str]:
    yield text(MARGIN, y, f"Each bar shows {Style().bytes(cell)} of memory:")
    for number, kind in enumerate(KINDS):
        x = MARGIN + number * LEGEND_WIDTH
        yield f'<rect x="{x}" y="{y + LINE - 10}" width="10" height="12" fill="{LOOKS[kind].svg}"/>'
        yield text(x + 14, y + LINE, LOOKS[kind].meaning)


def _group(group: MapGroup, at: int) -> tuple[list[str], int]:
    """Return the elements of a group of the map, and the vertical position at which the next group begins.

    ``at``: the vertical position of the group's title.
    """
    style = Style()
    resident = "" if group.resident is None else f", {style.bytes(group.resident)} resident"
    body = [text(MARGIN, at + 12, f"{group.name}: {style.bytes(group.end - group.start)}{resident}")]
    at += LINE
    for first in range(0, len(group.cells), ACROSS):
        cells = group.cells[first : first + ACROSS]
        body.append(text(MARGIN, at + 12, f"{cells[0].start:#x}"))
        body += _row(cells, at)
        at += CELL_HEIGHT + 2
    return body, at + LINE // 2


def _row(cells: list[Cell], at: int) -> Iterator[str]:
    """Yield the bars of a row of cells. Neighbours that look the same are drawn as one bar."""
    x = MARGIN + LABEL
    for filled, same in groupby(cells, key=_filled):
        width = len(list(same)) * CELL_WIDTH
        yield from bars(x, at, width, filled)
        x += width


def bars(x: float, top: int, width: float, filled: Sequence[int]) -> Iterator[str]:
    """Yield the parts of one bar, beginning with the lowest. ``filled``: how many eighths of the bar each kind
    takes."""
    bottom = top + CELL_HEIGHT
    for kind, steps in zip(KINDS, filled):
        height = steps * CELL_HEIGHT // STEPS
        bottom -= height
        if height:
            yield f'<rect x="{x:g}" y="{bottom}" width="{width:g}" height="{height}" fill="{LOOKS[kind].svg}"/>'


def _filled(cell: Cell) -> tuple[int, ...]:
    found = shares(cell)
    return heights([found[kind] for kind in KINDS])


def heights(found: Sequence[int]) -> tuple[int, ...]:
    """Return how many eighths of a bar each kind takes; they add up to eight.

    ``found``: the bytes of each kind, in the order of KINDS.
    """
    whole = sum(found) or 1
    filled, below, so_far = [], 0, 0
    for share in found:
        below += share
        upto = round(below * STEPS / whole)
        filled.append(upto - so_far)
        so_far = upto
    return tuple(filled)
