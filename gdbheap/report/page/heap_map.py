"""The page's section with the heap as a picture: each range of address space in cells, coloured by state or by type.

A cell may stand for several of the finest cells. When a cell is chosen, the page's script shows its finest cells. The
page contains the finest cells as two strings for each range.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from gdbheap.dataclass import dataclass
from gdbheap.errors import one_line
from gdbheap.report.page.html import Section, paragraph, refused, safe
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.heap_map import LOOKS, look_of

if TYPE_CHECKING:
    from gdbheap.answers.heap_map import Cell, MapGroup
    from gdbheap.snapshots.overview import Overview
    from gdbheap.snapshots.type_places import TypeShare

__all__ = ["map_section"]

ID, TITLE = "map", "Map of the heap"
ACROSS, CELL_WIDTH, CELL_HEIGHT, LINE = 128, 8, 14, 18
# The most cells in the picture; the most ranges that each have their own line; the most ranges in the picture; the most
# bytes of the finest cells. If there are more than ALONE ranges, only arenas and ranges that are larger than a 64th of
# the whole have a line of their own.
CELLS, ALONE, STRETCHES, DATA, LARGE_SHARE = 1500, 24, 1500, 256 << 10, 64
# At most about this many of the finest cells are merged into one cell.
COARSEST = 10_000
KINDS = tuple(LOOKS)
NOTHING, NO_OBJECT = 0, 1
NAMES = ("no block in use", "buffers and other blocks without an object")
# If at least a tenth of the resident memory is free, each range is drawn separately. Otherwise each allocator has a
# row, if it has at least a hundredth of the whole.
FREE_SHARE, SMALL_SHARE = 10, 100
KIND_NAMES = {"mmapped": "large blocks (mmap)", "other": "other memory"}
# The number of types that have a colour of their own.
COLOURED = 8
OTHER = len(NAMES) + COLOURED


@dataclass(frozen=True)
class _Place:
    """A cell of the map at its finest resolution, or adjacent cells that are drawn as one.

    ``first``: the index of the first cell within its range.
    ``count``: the number of cells.
    ``start``, ``end``: the addresses at which their memory begins and ends.
    ``kind``: the most frequent state, as an index in KINDS.
    ``type``: the most frequent type, as an index in the names of types.
    """

    first: int
    count: int
    start: int
    end: int
    kind: int
    type: int


@dataclass(frozen=True)
class _Stretch:
    """A group of the heap map, with its finest cells."""

    group: MapGroup
    places: list[_Place]


@dataclass(frozen=True)
class _Block:
    """Rows of cells below one title.

    ``numbers``: the numbers of the ranges that the rows show; ``step``: how many of the finest cells are drawn as one
    cell.
    """

    title: str
    numbers: list[int]
    step: int


def map_section(found: Overview) -> Section:
    """Return the section with the picture of the heap map, its legends, and the data of the finest cells."""
    answer = found.map.answer
    if answer is None:
        return refused(ID, TITLE, found.map.why)
    if not answer.rows:
        return refused(ID, TITLE, "the process has no memory that an allocator could have mapped")
    names, numbers = _types(found)
    stretches = _stretches(answer.rows, _by_cell(found), numbers)
    shown = sorted(stretches, key=lambda one: one.group.start - one.group.end)[:STRETCHES]
    if _is_in_use(found):
        blocks, small = _by_allocator(shown)
        told = [
            "Each row shows all memory of one allocator. Point to a cell, or use the arrow keys, to see what it "
            "contains.",
            small,
        ]
        told.append(f"The Enter key shows the parts of the cell, of {size_text(answer.cell)} each.")
    else:
        step = 1
        while sum(len(one.places) for one in shown) > CELLS * step:
            step *= 2
        blocks = [_Block(title, numbers, step) for title, numbers in _blocks(shown)]
        told = [
            f"Each cell stands for {size_text(answer.cell * step)} of address space. "
            "Point to a cell, or use the arrow keys, to see what it contains.",
            f"The Enter key shows the parts of the cell, of {size_text(answer.cell)} each." if step > 1 else "",
        ]
    left = len(stretches) - len(shown)
    more = f"{counted(left, 'smaller area is', 'smaller areas are')} not drawn." if left else ""
    body = [
        paragraph(" ".join(filter(None, told))),
        '<div class="map">\n',
        _choice(bool(numbers)),
        _legends(shown, names),
    ]
    body += [_picture(shown, blocks, names), "</div>\n", paragraph(more), _data(shown, answer.cell, names)]
    return Section(ID, TITLE, "".join(body))


def _types(found: Overview) -> tuple[list[str], dict[str | None, int]]:
    """Return the names of types, and the index of each name.

    The list begins with NAMES. Then come the types, those with the most bytes first.
    """
    sums: Counter[str] = Counter()
    for share in found.places.answer.shares if found.places.answer else ():
        if share.type is not None:
            sums[share.type] += share.bytes
    names = [*NAMES, *(name for name, _size in sums.most_common())]
    numbers: dict[str | None, int] = {name: place for place, name in enumerate(names) if place >= len(NAMES)}
    if found.places.answer is not None:
        numbers[None] = NO_OBJECT
    return names, numbers


def _by_cell(found: Overview) -> dict[int, list[TypeShare]]:
    shares: dict[int, list[TypeShare]] = {}
    for share in found.places.answer.shares if found.places.answer else ():
        shares.setdefault(share.place, []).append(share)
    return shares


def _stretches(
    groups: Sequence[MapGroup], shares: dict[int, list[TypeShare]], numbers: dict[str | None, int]
) -> list[_Stretch]:
    found, number = [], 0
    for group in groups:
        places = []
        for place, cell in enumerate(group.cells):
            places.append(_place(cell, place, shares.get(number, []), numbers))
            number += 1
        found.append(_Stretch(group, places))
    return found


def _place(cell: Cell, place: int, shares: Sequence[TypeShare], numbers: dict[str | None, int]) -> _Place:
    most = numbers.get(shares[0].type, NOTHING) if shares else NOTHING
    return _Place(place, 1, cell.start, cell.end, KINDS.index(look_of(cell)), most)


def _merged(places: Sequence[_Place]) -> _Place:
    """Merge adjacent groups of cells into one, with the kind and the type that most of the groups have."""
    first, last = places[0], places[-1]
    kind, of_type = (Counter(values).most_common(1)[0][0] for values in zip(*((one.kind, one.type) for one in places)))
    return _Place(first.first, sum(one.count for one in places), first.start, last.end, kind, of_type)


def _coarse(places: Sequence[_Place], step: int) -> list[_Place]:
    return [_merged(places[at : at + step]) for at in range(0, len(places), step)]


def _choice(has_types: bool) -> str:
    """Return the buttons that choose the meaning of the colours. They work without a script."""
    if not has_types:
        return ""
    rows = (("state", "by kind of memory", " checked"), ("type", "by the most frequent type of object", ""))
    radios = "".join(
        f'<input type="radio" name="map-colour" id="map-by-{name}"{checked}><label for="map-by-{name}">{text}</label>'
        for name, text, checked in rows
    )
    return f'<span class="choice">Colours:</span> {radios}\n'


def _legends(shown: Sequence[_Stretch], names: Sequence[str]) -> str:
    kinds = {place.kind for one in shown for place in one.places}
    types = {min(place.type, OTHER) for one in shown for place in one.places}
    of_kinds = "".join(_key(f"s{kind}", LOOKS[KINDS[kind]].meaning) for kind in sorted(kinds))
    of_types = "".join(_key(f"t{kind}", "other types" if kind == OTHER else names[kind]) for kind in sorted(types))
    return f'<ul class="legend of-state">{of_kinds}</ul>\n<ul class="legend of-type">{of_types}</ul>\n'


def _key(kind: str, text: str) -> str:
    name = kind if kind[0] == "s" else f"s7 {kind}"
    rect = f'<rect class="{name}" width="12" height="12"/>'
    return f'<li><svg width="12" height="12" aria-hidden="true">{rect}</svg>{safe(text, 60)}</li>'


def _is_in_use(found: Overview) -> bool:
    """Return whether little of the resident memory is free: less than 1/FREE_SHARE of the memory in use."""
    told = found.ledger.summary
    if told is None or told.used_resident is None or told.free_resident is None:
        return False
    return FREE_SHARE * told.free_resident < told.used_resident


def _by_allocator(shown: Sequence[_Stretch]) -> tuple[list[_Block], str]:
    """Return one row for each allocator, and a sentence that names the omitted allocators.

    An allocator is omitted if it has less than 1/SMALL_SHARE of the map's memory.
    """
    numbers: dict[str, list[int]] = {}
    for number in sorted(range(len(shown)), key=lambda number: shown[number].group.start):
        numbers.setdefault(shown[number].group.kind, []).append(number)
    sizes = {kind: sum(_resident(shown[number].group) for number in own) for kind, own in numbers.items()}
    blocks, small = [], []
    for kind in sorted(sizes, key=lambda one: -sizes[one]):
        groups = [shown[number].group for number in numbers[kind]]
        if SMALL_SHARE * sizes[kind] < sum(sizes.values()):
            small.append(KIND_NAMES.get(kind, kind))
            continue
        # If there are more ranges than cells in a row, the smallest ranges are left out.
        own = sorted(numbers[kind], key=lambda number: -len(shown[number].places))[:ACROSS]
        step = 1
        while sum(-(-len(shown[number].places) // step) for number in own) > ACROSS:
            step *= 2
            own = own if step <= COARSEST else own[: ACROSS // 2]
        blocks.append(_Block(f"{KIND_NAMES.get(kind, kind)}: {_sizes(groups)}", sorted(own), step))
    told = f"{', '.join(small)}: less than 1 % of the memory, not drawn." if small else ""
    return blocks, told


def _resident(group: MapGroup) -> int:
    return group.end - group.start if group.resident is None else group.resident


def _picture(shown: Sequence[_Stretch], blocks: Sequence[_Block], names: Sequence[str]) -> str:
    """Return the picture: each title with its rows of cells."""
    body: list[str] = []
    at = 0
    for block in blocks:
        body.append(f'<text x="0" y="{at + 13}">{safe(block.title)}</text>')
        at += LINE
        cells = [(number, cell) for number in block.numbers for cell in _coarse(shown[number].places, block.step)]
        for first in range(0, len(cells), ACROSS):
            body += _row(cells[first : first + ACROSS], at, names)
            at += CELL_HEIGHT + 2
        at += LINE // 3
    width = ACROSS * CELL_WIDTH
    told = f"The heap in {counted(len(shown), 'area')} of address space"
    head = f'<svg class="cells picture" viewBox="0 0 {width} {at}" width="{width}" role="img" aria-label="{told}">'
    return "\n".join([f"<figure>{head}", *body, "</svg></figure>\n"])


def _blocks(shown: Sequence[_Stretch]) -> Iterator[tuple[str, list[int]]]:
    """Yield each title of the picture, with the indexes in ``shown`` of the ranges that are drawn below it."""
    by_address = sorted(range(len(shown)), key=lambda number: shown[number].group.start)
    others: dict[str, list[int]] = {}
    whole = sum(one.group.end - one.group.start for one in shown)
    for number in by_address:
        group = shown[number].group
        is_large = group.arena is not None or LARGE_SHARE * (group.end - group.start) > whole
        if number < ALONE and (is_large or len(shown) <= ALONE):
            yield f"{group.start:#x} {group.name}: {_sizes([group])}", [number]
        else:
            others.setdefault(group.name, []).append(number)
    for name, numbers in others.items():
        smaller = counted(len(numbers), "smaller area")
        yield f"{name}, {smaller}: {_sizes([shown[number].group for number in numbers])}", numbers


def _sizes(groups: Sequence[MapGroup]) -> str:
    known = [group.resident for group in groups if group.resident is not None]
    resident = f", {size_text(sum(known))} resident" if len(known) == len(groups) else ""
    return f"{size_text(sum(group.end - group.start for group in groups))}{resident}"


def _row(cells: Sequence[tuple[int, _Place]], top: int, names: Sequence[str]) -> Iterator[str]:
    """Yield the rectangles of one row. Adjacent cells of a range that look the same are one rectangle. ``cells``: each
    cell with the number of its range."""
    x = 0
    for (number, kind, of_type), alike in groupby(cells, key=lambda cell: (cell[0], cell[1].kind, cell[1].type)):
        run = [cell for _number, cell in alike]
        width = len(run) * CELL_WIDTH
        place = f'x="{x}" y="{top}" width="{width}" height="{CELL_HEIGHT}"'
        data = f'data-g="{number}" data-i="{run[0].first}" data-n="{sum(cell.count for cell in run)}"'
        mostly = f", most of it {safe(names[of_type])}" if of_type != NOTHING else ""
        start, end = run[0].start, run[-1].end
        title = f"{start:#x} to {end:#x}, {size_text(end - start)}: {LOOKS[KINDS[kind]].meaning}{mostly}"
        yield f'<rect class="cell s{kind} t{min(of_type, OTHER)}" {place} {data}><title>{title}</title></rect>'
        x += width


def _data(shown: Sequence[_Stretch], cell: int, names: Sequence[str]) -> str:
    """Return the finest cells as data for the page's script. Each string lists runs of equal cells: "number*length" or
    "number"."""
    step = 1
    while True:
        content = _content(shown, cell, step, names)
        text = json.dumps(content, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
        if len(text) <= DATA or step > COARSEST:
            return f'<script type="application/json" id="map-data">{text}</script>\n'
        step *= 2


def _content(shown: Sequence[_Stretch], cell: int, step: int, names: Sequence[str]) -> dict[str, object]:
    groups: list[list[object]] = []
    met: dict[int, int] = {}
    for one in shown:
        cells = _coarse(one.places, step)
        kinds, types = [place.kind for place in cells], [met.setdefault(place.type, len(met)) for place in cells]
        groups.append([one.group.start, one.group.end, _runs(kinds), _runs(types)])
    types_met = [[min(number, OTHER), one_line(names[number], 120)] for number in met]
    return {
        "cell": cell * step,
        "step": step,
        "kinds": [LOOKS[kind].meaning for kind in KINDS],
        "types": types_met,
        "groups": groups,
    }


def _runs(numbers: Sequence[int]) -> str:
    found = ((number, len(list(same))) for number, same in groupby(numbers))
    return " ".join(str(number) if length == 1 else f"{number}*{length}" for number, length in found)
