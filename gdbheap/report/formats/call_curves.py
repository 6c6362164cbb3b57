"""Draw the memory in use over calls and over time. The picture is laid out when it is written and needs no script.

A curve consists of intervals. A line shows the value at the end of each interval. For bytes, an area shows the highest
value within the interval, so that no peak is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import cycle
from typing import TYPE_CHECKING

from gdbheap.dataclass import dataclass
from gdbheap.report.text.numbers import count_text, duration_text, size_text
from gdbheap.report.words.calls import about

if TYPE_CHECKING:
    from gdbheap.tracing.call_stats import CallStats, Point

__all__ = ["curves_part", "curves_style", "picture"]

WIDTH, HEAD, PANEL, GAP = 960, 64, 180, 64
LEFT, RIGHT = 90, 24
MARKS = 5
LONG_SECONDS = 120
BYTES, BLOCKS, AREA = "Requested bytes in use,", "Blocks in use", "; the shaded area shows the most in each interval"
ONLY = 5
# The distances of grid lines: the first distance is 1.
#
# For a larger one, multiply by the first factor and divide by the second, then use the next two, and so on. This gives
# powers of two, or 1, 2, 5, 10, 20 ….
POWERS, TENS = (2, 1), (2, 1, 5, 2, 2, 1)
# The colours in the light and in the dark scheme. Text has a contrast of at least 7 to 1 on the page.
COLOURS = {
    "page": ("#ffffff", "#161616"),
    "text": ("#1a1a1a", "#f5f5f5"),
    "grid": ("#d1d9e0", "#3a3f46"),
    "most": ("#a9cdf0", "#1f4a73"),
    "line": ("#0550ae", "#6cb6ff"),
    "peak": ("#8a3500", "#f69d50"),
}
FIXED = (
    ".calls .title{font-size:15px;font-weight:600}.calls .name{font-weight:600}.calls .left{text-anchor:end}"
    ".calls .below{text-anchor:middle}.calls .line{fill:none;stroke-width:1.2}"
)
Words = Callable[[float], str]


@dataclass(frozen=True)
class _Panel:
    """One panel of the picture.

    ``rows``: for each interval its end, the value there, and the highest value within it. ``peak``: the position on the
    horizontal axis and the value of the highest point. ``place_text`` and ``value_text``: functions that format
    positions and values. ``steps``: the steps between grid lines, see ``_lines``.
    """

    title: str
    rows: list[tuple[float, int, int]]
    peak: tuple[float, int]
    place_text: Words
    value_text: Words
    steps: tuple[int, ...]

    @property
    def end(self) -> float:
        """The last position on the horizontal axis; always above 0."""
        return max(self.rows[-1][0], 1e-9) if self.rows else 1

    @property
    def top(self) -> int:
        """The highest value on the vertical axis; at least 1."""
        return max(1, self.peak[1])


def picture(answer: CallStats) -> str:
    """Return one SVG document: bytes and blocks in use, over calls and over time."""
    panels = list(_panels(answer))
    height = HEAD + len(panels) * (PANEL + GAP)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'class="calls" font-family="system-ui, sans-serif" font-size="12" role="img">'
    )
    peak = answer.peak
    most = f"At most {size_text(peak.bytes)} in {count_text(peak.count)} blocks, after call {count_text(peak.call)}"
    told = f"{about(answer)} {most}, at {_time_text(peak.seconds)}."
    body = [head, f"<title>{_safe(told)}</title>", _styles(), f'<rect class="page" width="{WIDTH}" height="{height}"/>']
    body.append(f'<text class="title" x="16" y="26">{_safe(about(answer))}</text>')
    body.append(f'<text x="16" y="46">{_safe(most)}, at {_time_text(peak.seconds)}.</text>')
    for number, panel in enumerate(panels):
        body += _drawn(panel, HEAD + number * (PANEL + GAP) + GAP // 2)
    return "\n".join([*body, "</svg>", ""])


def curves_part(answer: CallStats) -> str:
    """Return the panels without the title, as a part of a page whose style includes ``curves_style``."""
    panels = list(_panels(answer))
    height = len(panels) * (PANEL + GAP)
    most = f"At most {size_text(answer.peak.bytes)} in {count_text(answer.peak.count)} blocks"
    body = [f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" class="calls" role="img" aria-label="{_safe(most)}">']
    for number, panel in enumerate(panels):
        body += _drawn(panel, number * (PANEL + GAP) + GAP // 2)
    return "\n".join([*body, "</svg>", ""])


def curves_style(grounds: tuple[str, str]) -> str:
    """Return the style of ``curves_part`` on a light and on a dark background. A printed page uses the light one.
    ``grounds``: the two background colours."""
    light, dark = _scheme(0, grounds[0]), _scheme(1, grounds[1])
    return f"{FIXED}{light}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}\n"


def _panels(answer: CallStats) -> Iterator[_Panel]:
    def calls(place: float) -> str:
        return count_text(round(place))

    def size(value: float) -> str:
        return size_text(round(value))

    peak, most = answer.peak, answer.most_blocks
    points = answer.curve.over_calls
    yield from (
        _Panel(f"{BYTES} over calls{AREA}", _bytes(points, [point.call for point in points]), (peak.call, peak.bytes),
               calls, size, POWERS),
        _Panel(f"{BLOCKS} over calls", _blocks(points, [point.call for point in points]), (most.call, most.count),
               calls, calls, TENS),
    )  # fmt: skip
    points = answer.curve.over_seconds
    # The calls of a point begin at its time. Then nothing changes until the next point.
    ends = [*(point.seconds for point in points[1:]), answer.seconds][: len(points)]
    yield from (
        _Panel(f"{BYTES} over time{AREA}", _bytes(points, ends), (peak.seconds, peak.bytes), _time_text, size, POWERS),
        _Panel(f"{BLOCKS} over time", _blocks(points, ends), (most.seconds, most.count), _time_text, calls, TENS),
    )  # fmt: skip


def _bytes(points: Sequence[Point], ends: Sequence[float]) -> list[tuple[float, int, int]]:
    return [(end, point.bytes, point.most) for end, point in zip(ends, points)]


def _blocks(points: Sequence[Point], ends: Sequence[float]) -> list[tuple[float, int, int]]:
    return [(end, point.count, point.count) for end, point in zip(ends, points)]


def _time_text(seconds: float) -> str:
    if seconds >= LONG_SECONDS:
        return duration_text(seconds)
    return f"{seconds:.3g} s" if seconds >= 1 or not seconds else f"{1000 * seconds:.3g} ms"


def _drawn(panel: _Panel, at: int) -> Iterator[str]:
    """Yield the elements of a panel. ``at``: the vertical position of the panel's title."""
    top, bottom = at + 12, at + 12 + PANEL
    yield f'<text class="name" x="{LEFT}" y="{at}">{_safe(panel.title)}</text>'
    for value in _lines(panel.top, panel.steps):
        y = _y(panel, value, top)
        yield f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>'
        yield f'<text class="left" x="{LEFT - 8}" y="{float(y) + 4:.1f}">{_safe(panel.value_text(value))}</text>'
    for mark in range(MARKS + 1):
        place = panel.end * mark / MARKS
        yield f'<text class="below" x="{_x(panel, place)}" y="{bottom + 18}">{_safe(panel.place_text(place))}</text>'
    if not panel.rows:
        return
    yield f'<path class="most" d="{_steps(panel, top, 2)}V{bottom}H{LEFT}Z"/>'
    yield f'<path class="line" d="{_steps(panel, top, 1)}"/>'
    place, most = panel.peak
    words = f"{panel.value_text(most)} at {panel.place_text(place)}"
    yield (
        f'<circle class="peak" cx="{_x(panel, place)}" cy="{_y(panel, most, top)}" r="4">'
        f"<title>{_safe(words)}</title></circle>"
    )


def _steps(panel: _Panel, top: int, column: int) -> str:
    """Return an SVG path that goes up or down in a step where an interval begins. ``column``: the index of the value in
    a row of the panel.
    """
    path, before = f"M{LEFT} {_y(panel, panel.rows[0][column], top)}", ""
    for row in panel.rows:
        y = _y(panel, row[column], top)
        path += (f"V{y}" if y != before else "") + f"H{_x(panel, row[0])}"
        before = y
    return path


def _lines(highest: int, steps: Sequence[int]) -> Iterator[int]:
    """Yield the values of a few grid lines. The first value is 0.

    The distance between lines begins with 1. It is multiplied and divided by the factors in ``steps`` in turn, until
    there are only a few lines.
    """
    distance, factors = 1, cycle(steps)
    while highest > distance * ONLY:
        distance = distance * next(factors) // next(factors)
    yield from range(0, highest + 1, distance)


def _x(panel: _Panel, place: float) -> str:
    return f"{LEFT + (WIDTH - LEFT - RIGHT) * place / panel.end:.1f}"


def _y(panel: _Panel, value: float, top: int) -> str:
    return f"{top + PANEL * (1 - value / panel.top):.1f}"


def _styles() -> str:
    return f"<style>{FIXED}{_scheme(0)}@media(prefers-color-scheme:dark){{{_scheme(1)}}}</style>"


def _scheme(number: int, ground: str = "") -> str:
    page, text, grid, most, line, peak = (COLOURS[name][number] for name in COLOURS)
    page = ground or page
    return (
        f".calls{{background:{page}}}.calls .page{{fill:{page}}}.calls text{{fill:{text}}}"
        f".calls .grid{{stroke:{grid}}}.calls .most{{fill:{most}}}.calls .line{{stroke:{line}}}"
        f".calls .peak{{fill:{peak}}}"
    )


def _safe(text: str) -> str:
    """Return text escaped for XML. ``one_line`` has already replaced the characters that XML does not allow."""
    return escape(text, quote=False)
