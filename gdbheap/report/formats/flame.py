"""Draw stacks with weights as a flame graph, with the root at the top. The picture is laid out when it is written and
needs no script.

Widths are percentages of the whole, so the picture fits any window. Each cell is a nested SVG element, which cuts off
the cell's text at its edge. The full text is in the cell's title: browsers show it under the pointer, and screen
readers read it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from heapq import heappop, heappush
from html import escape
from typing import TYPE_CHECKING
from zlib import crc32

from gdbheap.dataclass import dataclass
from gdbheap.errors import one_line
from gdbheap.report.formats.weighted import label
from gdbheap.report.text.numbers import count_text, counted, share_text, size_text

if TYPE_CHECKING:
    from gdbheap.stack_frames import StackFrame
    from gdbheap.stacks import Weighted

__all__ = ["ALLOCATED", "CALLS", "COLOURS", "Colours", "Subject", "flame_graph", "flame_part", "flame_style"]

# Cells that would be narrower than one pixel in a picture of this width are merged. If the picture would have more than
# LARGEST bytes, so are the smallest other cells.
WIDTH, LARGEST = 1200, 1 << 20
# The most bytes of a picture without its cells, and of a merged cell.
HEAD_BYTES, MERGED_BYTES = 8 << 10, 300
ROW, HEAD, MARGIN = 18, 82, 8
# CHARACTER: the approximate width of a character in pixels. A cell in which fewer than three fit has no text.
CHARACTER, SHORTEST, LONGEST = 7, 3, 100
SHADES = 3
# For each kind of frame, the colours of its cells in the light and in the dark scheme. There are a few shades, to
# distinguish neighbours. Text has a contrast of at least 7 to 1 on all of them.
Colours = Mapping[str, "tuple[tuple[str, ...], tuple[str, ...]]"]
COLOURS: Colours = {
    "python": (("#ffd27a", "#ffc45c", "#ffdd9a"), ("#6b4a00", "#5c4000", "#7a5600")),
    "native": (("#a9cdf0", "#97c1ea", "#bcd9f5"), ("#1f4a73", "#193f63", "#265482")),
    "rest": (("#d9d9d9",) * 3, ("#474747",) * 3),
}


@dataclass(frozen=True)
class Subject:
    """The subject of a flame graph.

    ``colours``: the colours for each kind of frame.
    ``meanings``: the texts for these kinds in the legend.
    ``cell``: the word for a cell into which small cells are merged.
    ``counts``: the noun, in the singular, for what is counted in addition to the weights. A count of 0 is printed only
    for calls.
    """

    colours: Colours
    meanings: Mapping[str, str]
    cell: str
    counts: str


CALLS = Subject(
    COLOURS, {"python": "Python", "native": "C and other native code", "rest": "several"}, "smaller function", "call"
)
# For pictures of the blocks that stacks allocated.
ALLOCATED = replace(CALLS, counts="block")


@dataclass(frozen=True)
class _Cell:
    """A cell of the flame graph: a frame, and all stacks that go through it.

    ``depth``: its row.
    ``left``: its left edge, in units of weight.
    ``text``: the text on it.
    ``about``: further text for its title.
    """

    depth: int
    left: int
    weight: int
    calls: int
    kind: str
    text: str
    about: str = ""


def flame_graph(stacks: Sequence[Weighted], title: str, unit: str = "bytes", subject: Subject = CALLS) -> str:
    """Return a flame graph as an SVG document of about 1 MiB at most.

    ``unit``: the unit of the weights, a plural such as "bytes".
    """
    root, stacks = _root(stacks)
    drawn = _drawn_cells(root, stacks, LARGEST, subject.cell, lambda cell: _drawn(cell, root.weight, unit, subject))
    return _document([cell for cell, _text in drawn], [text for _cell, text in drawn], title, unit, subject)


def flame_part(
    stacks: Sequence[Weighted], title: str, subject: Subject = ALLOCATED, largest: int = LARGEST >> 2
) -> str:
    """Return the flame graph without title and legend, as a part of a page whose style includes ``flame_style``.
    ``largest``: the maximum size of the result in bytes.
    """
    root, stacks = _root(stacks)
    told = f"{one_line(title, LONGEST)}: {_amounts(root.weight, root.calls, 'bytes', subject.counts)}"
    drawn = _drawn_cells(
        root, stacks, largest, subject.cell, lambda cell: _drawn(cell, root.weight, "bytes", subject, 0)
    )
    height = (1 + max(cell.depth for cell, _text in drawn)) * ROW
    head = f'<svg width="100%" height="{height}" class="flame picture" role="img" aria-label="{escape(told)}">'
    return "\n".join([head, *(text for _cell, text in drawn), "</svg>", ""])


def _root(stacks: Iterable[Weighted]) -> tuple[_Cell, list[Weighted]]:
    """Return the outermost cell of the flame graph, and the stacks whose weight is above 0."""
    inside = [stack for stack in stacks if stack[1] > 0]
    return _Cell(0, 0, *_sums(inside), "rest", "all"), inside


def _sums(stacks: Sequence[Weighted]) -> tuple[int, int]:
    return sum(weight for _frames, weight, _calls in stacks), sum(calls for _frames, _weight, calls in stacks)


def _drawn_cells(
    root: _Cell, stacks: list[Weighted], largest: int, called: str, draw: Callable[[_Cell], str]
) -> list[tuple[_Cell, str]]:
    """Return the cells of a picture of at most ``largest`` bytes, each with the text that ``draw`` makes of it.

    Outer cells come before inner ones. Inside a cell, the largest cell is leftmost. Frames narrower than a pixel are
    merged into one cell at the right. Its text is the number of these frames and the word ``called``. If the picture
    would exceed ``largest`` bytes, the smallest other frames are merged too. No tree is built, because most frames of
    many deep stacks are too small to be drawn.
    """
    name, where = cache(label), cache(_where)
    found = [(root, draw(root))]
    room = largest - HEAD_BYTES - _size(found[0][1]) - MERGED_BYTES
    # The drawn cells whose inner cells are not known yet, the largest first, with their stacks. For each of them there
    # is room for a merged cell.
    open_ = [(-root.weight, 0, root, stacks)]
    while open_:
        _weight, _number, outer, stacks = heappop(open_)
        depth, left = outer.depth + 1, outer.left
        rows = [(*_sums(inner), frame, inner) for frame, inner in _inside(stacks, outer.depth)]
        wide = [row for row in rows if row[0] * WIDTH >= root.weight]
        wide.sort(key=lambda row: (-row[0], name(row[2])))
        merged = [row for row in rows if row[0] * WIDTH < root.weight]
        for place, (weight, calls, frame, inner) in enumerate(wide):
            cell = _Cell(depth, left, weight, calls, frame.kind, name(frame), where(frame))
            text = draw(cell)
            if _size(text) + MERGED_BYTES > room:
                merged += wide[place:]
                break
            room -= _size(text) + MERGED_BYTES
            heappush(open_, (-weight, len(found), cell, inner))
            found.append((cell, text))
            left += weight
        if merged:
            weight, calls = sum(row[0] for row in merged), sum(row[1] for row in merged)
            cell = _Cell(depth, left, weight, calls, "rest", counted(len(merged), called))
            found.append((cell, draw(cell)))
        else:
            room += MERGED_BYTES
    return sorted(found, key=lambda row: (row[0].left, row[0].depth))


def _size(text: str) -> int:
    """Return the size in bytes of a line of the SVG document."""
    return len(text.encode()) + 1


def _inside(stacks: Iterable[Weighted], depth: int) -> Iterable[tuple[StackFrame, list[Weighted]]]:
    """Return the frames at a depth, each with the stacks that contain the frame at this depth."""
    found: dict[StackFrame, list[Weighted]] = {}
    last, inside = None, []
    for stack in stacks:
        if len(stack[0]) <= depth:
            continue
        frame = stack[0][depth]
        # A frame is compared with the last one first, because its hash takes longer.
        if frame is not last:
            last, inside = frame, found.setdefault(frame, [])
        inside.append(stack)
    return found.items()


def _where(frame: StackFrame) -> str:
    line = "" if frame.line is None else f", line {frame.line}"
    return one_line(f"{frame.file}{line}") if frame.file else ""


def _document(cells: Sequence[_Cell], drawn: Iterable[str], title: str, unit: str, subject: Subject) -> str:
    root = cells[0]
    height = HEAD + (1 + max(cell.depth for cell in cells)) * ROW + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" '
        'class="flame" font-family="system-ui, sans-serif" font-size="12" role="img">'
    )
    told, size = one_line(title, LONGEST), _amounts(root.weight, root.calls, unit, subject.counts)
    style = _styles(subject.colours)
    body = [head, f"<title>{_safe(told)}: {size}</title>", style, '<rect class="page" width="100%" height="100%"/>']
    body.append(f'<text class="title" x="{MARGIN}" y="22">{_safe(told)}</text>')
    body += [f'<text x="{MARGIN}" y="42">{size}</text>', *_legend(cells, subject)]
    return "\n".join([*body, *drawn, "</svg>", ""])


def _amounts(weight: int, calls: int, unit: str, counts: str, share: str = "") -> str:
    """Return the weight, its share, and the count, as text.

    The count is left out if it equals the weight. A count of 0 is left out too, unless calls are counted.
    """
    size = size_text(weight) if unit == "bytes" else f"{count_text(weight)} {unit}"
    is_told = unit == "bytes" or weight != calls
    return f"{size}{share}" + (f", {counted(calls, counts)}" if is_told and (calls or counts == "call") else "")


def _styles(colours: Colours) -> str:
    fixed = ".flame .title{font-size:15px;font-weight:600}.flame>svg:hover>rect{stroke:#d02090;stroke-width:2}"
    light, dark = _scheme(colours, 0, "#ffffff", "#1a1a1a"), _scheme(colours, 1, "#161616", "#f5f5f5")
    return f"<style>{fixed}{light}@media(prefers-color-scheme:dark){{{dark}}}</style>"


def flame_style(colours: Colours, grounds: tuple[str, str]) -> str:
    """Return the style of ``flame_part`` on a light and on a dark background. A printed page uses the light one.
    ``grounds``: the two background colours."""
    light, dark = _scheme(colours, 0, grounds[0], "#1a1a1a"), _scheme(colours, 1, grounds[1], "#f5f5f5")
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}\n"


def _scheme(colours: Colours, number: int, page: str, text: str) -> str:
    """Return the style for one colour scheme. ``number``: 0 for the light one, 1 for the dark one; ``page``, ``text``:
    the colours of the background and of text."""
    rows = [(f"{kind}{shade}", fills[number][shade]) for kind, fills in colours.items() for shade in range(SHADES)]
    cells = "".join(f".flame .{name}{{fill:{fill}}}" for name, fill in rows)
    own = f".flame{{background:{page}}}.flame .page{{fill:{page}}}.flame>svg>rect{{stroke:{page}}}"
    return f"{own}.flame text{{fill:{text}}}{cells}"


def _legend(cells: Sequence[_Cell], subject: Subject) -> Iterator[str]:
    """Yield the legend of the colours that occur below the outermost cell. If there are no stacks, yield a note
    instead.
    """
    kinds = {_kind(cell.kind, subject.colours) for cell in cells[1:]}
    if not kinds:
        yield f'<text x="{MARGIN}" y="62">There are no stacks to draw.</text>'
    x = MARGIN
    for kind, name in subject.meanings.items():
        if kind not in kinds:
            continue
        yield f'<rect class="{kind}0" x="{x}" y="54" width="12" height="12"/><text x="{x + 17}" y="64">{name}</text>'
        x += 17 + CHARACTER * len(name) + 16


def _drawn(cell: _Cell, whole: int, unit: str, subject: Subject, head: int = HEAD) -> str:
    colours = subject.colours
    share = f", {share_text(cell.weight, whole)} %"
    about = f"{cell.about}\n" if cell.about else ""
    title = f"{_safe(cell.text)}\n{_safe(about)}{_amounts(cell.weight, cell.calls, unit, subject.counts, share)}"
    kind = f"{_kind(cell.kind, colours)}{crc32(cell.text.encode('utf-8', 'replace')) % SHADES}"
    place = f'x="{_percent(cell.left, whole)}" y="{head + cell.depth * ROW}" width="{_percent(cell.weight, whole)}"'
    fits = min(LONGEST, WIDTH * cell.weight // max(whole, 1) // CHARACTER * 4)
    text = f'<text x="3" y="13">{_safe(cell.text[:fits])}</text>' if fits >= SHORTEST * 4 else ""
    rect = f'<rect class="{kind}" width="100%" height="{ROW - 1}"/>'
    return f'<svg {place} height="{ROW - 1}"><title>{title}</title>{rect}{text}</svg>'


def _kind(kind: str, colours: Colours) -> str:
    return kind if kind in colours else "native" if "native" in colours else "rest"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.4f}".rstrip("0").rstrip(".") + "%" if whole else "100%"


def _safe(text: str) -> str:
    """Return text escaped for XML. ``one_line`` has already replaced the characters that XML does not allow."""
    return escape(text, quote=False)
