"""A film of a heap: pictures of its map at many moments, at the same scale, and a page that plays them.

Until all frames have been added, a frame stores only the bytes of each cell by kind; most cells are equal and share one
object. The pictures are drawn at the end, when all addresses that the heap ever had are known. Each address therefore
has the same position in all pictures.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from gdbheap.dataclass import dataclass
from gdbheap.files import PRIVATE, check_folder, make_folder, replacing_folder
from gdbheap.report.formats.svg import (
    ACROSS,
    BELOW_LEGEND,
    CELL_HEIGHT,
    CELL_WIDTH,
    KINDS,
    LABEL,
    LINE,
    MARGIN,
    bars,
    document,
    heights,
    text,
)
from gdbheap.report.text.style import Style
from gdbheap.report.words.heap_map import shares

if TYPE_CHECKING:
    from gdbheap.answers.heap_map import HeapMap, MapGroup

__all__ = ["Film", "Shot"]

# The most cells of a picture. If there would be more, cells get twice the size.
CELLS = 4000
PAGE = "index.html"
OTHER = "other"
Bytes = tuple[int, ...]


@dataclass(frozen=True)
class MapRange:
    """A range of address space in a map. ``cells``: for each cell the bytes of each kind, in the order of KINDS."""

    name: str
    start: int
    end: int
    resident: int | None
    cells: list[Bytes]


@dataclass(frozen=True)
class Shot:
    """A picture that was written: its file, the call after which its map was taken, and the bytes of address space in
    it."""

    file: str
    call: int
    bytes: int


@dataclass(frozen=True)
class FilmFrame:
    """One picture of the film: those data of a heap map that drawing needs.

    ``call``: the call after which the map was taken.
    ``cell``: the bytes of one cell.
    """

    call: int
    cell: int
    stretches: list[MapRange]


def is_replaced(_name: str) -> bool:
    """Return False for every name in the film's folder: a film replaces no file. A folder that contains files is
    refused and stays unchanged.
    """
    return False


@dataclass
class Film:
    """The frames of a film, and the empty folder into which the film is written.

    ``with_others``: also draw memory that belongs to no allocator. ``cell``: the size of a cell in bytes, which never
    shrinks. ``mode``: the files' permissions.
    """

    folder: str
    with_others: bool
    mode: int = PRIVATE
    cell: int = 0
    frames: list[FilmFrame] = field(default_factory=list)
    _alike: dict[Bytes, Bytes] = field(default_factory=dict)

    def prepare(self) -> None:
        """Check that the film's folder can be made. Raises UsageError if it cannot be made or contains files."""
        make_folder(os.path.dirname(os.path.abspath(self.folder)), self.mode)
        check_folder(self.folder, is_replaced)

    def add(self, call: int, take: Callable[[int], HeapMap]) -> None:
        """Add the map after call number ``call``.

        ``take``: a function that returns the map for a given cell size in bytes. If the size is 0, the function chooses
        it.
        """
        answer = take(self.cell)
        if self.cell and sum(len(group.cells) for group in self._drawn(answer)) > 2 * CELLS:
            answer = take(0)
        if answer.cell < self.cell:
            answer = take(self.cell)
        self.cell = answer.cell
        self.frames.append(FilmFrame(call, answer.cell, [self._stretch(group) for group in self._drawn(answer)]))

    def _drawn(self, answer: HeapMap) -> list[MapGroup]:
        return [group for group in answer.rows if self.with_others or group.kind != OTHER]

    def _stretch(self, group: MapGroup) -> MapRange:
        cells = []
        for cell in group.cells:
            found = shares(cell)
            one = tuple(found[kind] for kind in KINDS)
            cells.append(self._alike.setdefault(one, one))
        return MapRange(group.name, group.start, group.end, group.resident, cells)

    def write(self, title: str, calls: int) -> list[Shot]:
        """Write all pictures and the page, or nothing. Return the pictures.

        ``calls``: the number of calls in the log. Raises UsageError.
        """
        self._settle()
        with replacing_folder(self.folder, is_replaced, self.mode) as folder:
            return self._write(folder, title, calls)

    def _write(self, folder: str, title: str, calls: int) -> list[Shot]:
        places = list(_places(frame.stretches for frame in self.frames))
        starts = [place.start for place in places]
        shots = []
        for number, frame in enumerate(self.frames, 1):
            file = f"frame-{number:04}.svg"
            drawn = sum(stretch.end - stretch.start for stretch in frame.stretches)
            by_place: list[list[MapRange]] = [[] for _ in places]
            for stretch in frame.stretches:
                by_place[bisect_right(starts, stretch.start) - 1].append(stretch)
            about = f"{title}, after call {frame.call:,} of {calls:,}"
            _put(os.path.join(folder, file), _picture(about, self.cell, places, by_place))
            shots.append(Shot(file, frame.call, drawn))
        _put(os.path.join(folder, PAGE), _page(title, calls, shots))
        return shots

    def _settle(self) -> None:
        """Give the cells of all frames the same size, so large that the film's address ranges fit into one picture."""
        while _bars(self.frames, self.cell) > 2 * CELLS:
            self.cell *= 2
        self.frames = [
            FilmFrame(
                frame.call, self.cell, [_coarser(stretch, self.cell // frame.cell) for stretch in frame.stretches]
            )
            for frame in self.frames
        ]


def _put(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def _bars(frames: list[FilmFrame], cell: int) -> int:
    places = list(_places(frame.stretches for frame in frames))
    whole = sum(-(-(place.end - place.start) // cell) for place in places)
    # Each range takes at least one bar, so larger cells do not help if there are many small ranges.
    return 0 if len(places) > CELLS else whole


def _coarser(stretch: MapRange, times: int) -> MapRange:
    if times == 1:
        return stretch
    cells = [
        tuple(map(sum, zip(*stretch.cells[first : first + times]))) for first in range(0, len(stretch.cells), times)
    ]
    return MapRange(stretch.name, stretch.start, stretch.end, stretch.resident, cells)


@dataclass
class FilmRange:
    """An address range that some frame uses, and the names of the memory there."""

    start: int
    end: int
    names: list[str]

    @property
    def name(self) -> str:
        return ", ".join(self.names[:2])


def _places(frames: Iterable[list[MapRange]]) -> Iterator[FilmRange]:
    """Yield the address ranges that a film draws, ascending. Ranges that overlap or touch are merged."""
    every = {(stretch.start, stretch.end, stretch.name) for stretches in frames for stretch in stretches}
    last: FilmRange | None = None
    for start, end, name in sorted(every):
        if last is not None and start <= last.end:
            last.end = max(last.end, end)
            last.names += [name] if name not in last.names else []
            continue
        if last is not None:
            yield last
        last = FilmRange(start, end, [name])
    if last is not None:
        yield last


def _picture(title: str, cell: int, places: list[FilmRange], by_place: list[list[MapRange]]) -> str:
    body: list[str] = []
    at = BELOW_LEGEND
    for place, stretches in zip(places, by_place):
        body += _place(place, stretches, cell, at)
        at += LINE + _rows(place, cell) * (CELL_HEIGHT + 2) + LINE // 2
    return document(title, cell, body, at)


def _rows(place: FilmRange, cell: int) -> int:
    return -(-(place.end - place.start) // (cell * ACROSS))


def _place(place: FilmRange, stretches: list[MapRange], cell: int, at: int) -> Iterator[str]:
    style = Style()
    now = sum(stretch.end - stretch.start for stretch in stretches)
    known = [stretch.resident for stretch in stretches if stretch.resident is not None]
    resident = f", {style.bytes(sum(known))} resident" if known else ""
    yield text(MARGIN, at + 12, f"{place.name}: {style.bytes(now)}{resident}")
    for row in range(_rows(place, cell)):
        y = at + LINE + row * (CELL_HEIGHT + 2)
        yield text(MARGIN, y + 12, f"{place.start + row * ACROSS * cell:#x}")
    for stretch in stretches:
        for start, end, filled in _runs(stretch, cell):
            yield from _bars_of((start - place.start) / cell, (end - place.start) / cell, filled, at + LINE)


def _runs(stretch: MapRange, cell: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield (address of the first byte, address after the last byte, heights of the bars) for each run of cells that
    look the same.
    """
    start = stretch.start
    for filled, same in groupby(stretch.cells, key=heights):
        end = min(start + len(list(same)) * cell, stretch.end)
        yield start, end, filled
        start = end


def _bars_of(first: float, last: float, filled: tuple[int, ...], top: int) -> Iterator[str]:
    """Yield bars from ``first`` to ``last``, which are positions in a range, measured in cells. A bar ends at the end
    of its row.
    """
    while first < last:
        row = int(first // ACROSS)
        end = min(last, (row + 1) * ACROSS)
        x, width = MARGIN + LABEL + (first - row * ACROSS) * CELL_WIDTH, (end - first) * CELL_WIDTH
        yield from bars(x, top + row * (CELL_HEIGHT + 2), width, filled)
        first = end


def _page(title: str, calls: int, shots: list[Shot]) -> str:
    """Return the page that plays the pictures. The page loads nothing but the pictures next to it."""
    listed = json.dumps([[shot.file, f"call {shot.call:,} of {calls:,}"] for shot in shots])
    return PLAYER.replace("@TITLE@", escape(title)).replace("@LAST@", str(len(shots) - 1)).replace("@FRAMES@", listed)


PLAYER = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>@TITLE@</title>
<style>
body { font-family: sans-serif; margin: 1em; }
nav { position: sticky; top: 0; background: #ffffff; padding: 0.5em 0; }
#at { width: 50%; vertical-align: middle; }
</style>
<nav>
<button id="play">Play</button>
<input id="at" type="range" min="0" max="@LAST@" value="0">
<label>frames a second <input id="rate" type="number" min="1" max="60" value="8"></label>
<output id="call"></output>
</nav>
<img id="frame" alt="">
<script>
const frames = @FRAMES@;
const [play, at, rate, call, frame] = ["play", "at", "rate", "call", "frame"].map(id => document.getElementById(id));
const pictures = frames.map(([file]) => Object.assign(new Image(), {src: file}));
let timer = null;
function show(number) {
  at.value = number;
  frame.src = pictures[number].src;
  frame.alt = call.textContent = frames[number][1];
}
function stop() {
  clearTimeout(timer);
  timer = null;
  play.textContent = "Play";
}
function step() {
  if (+at.value >= frames.length - 1) return stop();
  show(+at.value + 1);
  timer = setTimeout(step, 1000 / Math.max(1, +rate.value));
}
play.onclick = () => {
  if (timer) return stop();
  if (+at.value >= frames.length - 1) show(0);
  play.textContent = "Stop";
  timer = setTimeout(step, 1000 / Math.max(1, +rate.value));
};
at.oninput = () => { stop(); show(+at.value); };
show(0);
</script>
</html>
"""
