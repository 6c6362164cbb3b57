"""Draw stacks with weights as a flame graph, its root on top. The picture is laid out when it is written and needs no
script.

Widths are percentages of the whole, so the picture fits any window. Each cell is an inner picture, which cuts off its
text at its edge. The full text is in the cell's title: browsers show it under the pointer, and screen readers read it
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING
from zlib import crc32

from gdbheap.errors import one_line
from gdbheap.report.formats.weighted import label
from gdbheap.report.text.numbers import count_text, counted, share_text, size_text

if TYPE_CHECKING:
    from gdbheap.stacks import StackFrame, Weighted

__all__ = ["ALLOCATED", "CALLS", "COLOURS", "Colours", "Subject", "flame_graph", "flame_part", "flame_style"]

# Cells that would be narrower than one pixel in a picture of this width are merged. If the picture would have more than
# LARGEST bytes, so are cells below two pixels, then four, and so on.
WIDTH, LARGEST = 1200, 1 << 20
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
    """What a flame graph shows.

    ``colours``: the colours for each kind of frame. ``meanings``: these kinds in words. ``cell``: what a merged small
    cell is called. ``counts``: the noun, in the singular, for what is counted in addition to the weights. A count of 0
    is printed only for calls.
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


@dataclass
class _Node:
    """A frame of the tree. ``weight`` and ``calls`` include those of the frames in ``inside``."""

    weight: int = 0
    calls: int = 0
    inside: dict[StackFrame, _Node] = field(default_factory=dict)


@dataclass(frozen=True)
class _Cell:
    """A cell of the picture.

    ``depth``: its row; ``left``: where it begins, in units of weight; ``text``: what is written on it; ``about``: what
    its title says in addition.
    """

    depth: int
    left: int
    weight: int
    calls: int
    kind: str
    text: str
    about: str = ""


def flame_graph(stacks: Sequence[Weighted], title: str, unit: str = "bytes", subject: Subject = CALLS) -> str:
    """Return an SVG document, at most about 1 MiB. ``unit``: "bytes", or the plural of what the weights count."""
    root = _tree(stacks)
    return _that_fits(root, LARGEST, subject, lambda cells: _document(cells, root, title, unit, subject))


def flame_part(
    stacks: Sequence[Weighted], title: str, subject: Subject = ALLOCATED, largest: int = LARGEST >> 2
) -> str:
    """Return the flame graph without title and legend, as a part of a page whose style includes ``flame_style``.
    ``largest``: the most bytes."""
    root = _tree(stacks)
    told = f"{one_line(title, LONGEST)}: {_amounts(root.weight, root.calls, 'bytes', subject.counts)}"

    def part(cells: Sequence[_Cell]) -> str:
        height = (1 + max(cell.depth for cell in cells)) * ROW
        head = f'<svg width="100%" height="{height}" class="flame picture" role="img" aria-label="{escape(told)}">'
        drawn = [_drawn(cell, root.weight, "bytes", subject, 0) for cell in cells]
        return "\n".join([head, *drawn, "</svg>", ""])

    return _that_fits(root, largest, subject, part)


def _that_fits(root: _Node, largest: int, subject: Subject, draw: Callable[[Sequence[_Cell]], str]) -> str:
    """Return the picture with the smallest cells with which it still has at most ``largest`` bytes."""
    pixels = 1
    while True:
        text = draw(list(_cells(root, max(root.weight * pixels / WIDTH, 1e-9), subject.cell)))
        if len(text.encode()) <= largest or pixels > WIDTH:
            return text
        pixels *= 2


def _tree(stacks: Iterable[Weighted]) -> _Node:
    root = _Node()
    for frames, weight, calls in stacks:
        if weight <= 0:
            continue
        node = root
        _add(node, weight, calls)
        for frame in frames:
            node = node.inside.setdefault(frame, _Node())
            _add(node, weight, calls)
    return root


def _add(node: _Node, weight: int, calls: int) -> None:
    node.weight += weight
    node.calls += calls


def _cells(root: _Node, least: float, called: str) -> Iterator[_Cell]:
    """Yield the cells: outer ones before inner ones, and the largest leftmost.

    Frames whose weight is below ``least`` are merged into one cell at the right, with their number and the word
    ``called``.
    """
    yield _Cell(0, 0, root.weight, root.calls, "rest", "all")
    open_ = [(root, 1, 0)]
    while open_:
        node, depth, left = open_.pop()
        rows = sorted(node.inside.items(), key=lambda row: (-row[1].weight, label(row[0])))
        small = [inner for _frame, inner in rows if inner.weight < least]
        for frame, inner in rows[: len(rows) - len(small)]:
            yield _Cell(depth, left, inner.weight, inner.calls, frame.kind, label(frame), _where(frame))
            open_.append((inner, depth + 1, left))
            left += inner.weight
        if small:
            weight, calls = sum(inner.weight for inner in small), sum(inner.calls for inner in small)
            yield _Cell(depth, left, weight, calls, "rest", counted(len(small), called))


def _where(frame: StackFrame) -> str:
    line = "" if frame.line is None else f", line {frame.line}"
    return one_line(f"{frame.file}{line}") if frame.file else ""


def _document(cells: Sequence[_Cell], root: _Node, title: str, unit: str, subject: Subject) -> str:
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
    body += [_drawn(cell, root.weight, unit, subject) for cell in cells]
    return "\n".join([*body, "</svg>", ""])


def _amounts(weight: int, calls: int, unit: str, counts: str, share: str = "") -> str:
    """Return the weight, its share, and the count, in words.

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
    """Yield a legend of the colours that occur below the outermost cell; a note if there are no stacks."""
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
    """Return text escaped for XML. Characters that XML does not allow were replaced before (``one_line``)."""
    return escape(text, quote=False)
