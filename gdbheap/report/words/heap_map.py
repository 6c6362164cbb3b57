"""The text of ``heap map``: how much memory is in use and free, a picture, and a legend.

In the picture, each cell is one character, in colour if the terminal can show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gdbheap.dataclass import dataclass
from gdbheap.report.text.numbers import address_text, counted, listed
from gdbheap.report.text.style import COLOURS, PLAIN, Style
from gdbheap.report.text.tables import join
from gdbheap.text import printable_record

if TYPE_CHECKING:
    from gdbheap.answers.heap_map import Cell, CellPart, HeapMap, MapGroup

__all__ = ["LOOKS", "CellStyle", "look_of", "render", "shares"]

WIDTH = 100
ADDRESS_WIDTH = 15
MIN_CELLS_ACROSS = 16


@dataclass(frozen=True)
class CellStyle:
    """The appearance of cells of one kind: its characters, its colours in a terminal and in SVG, and its meaning."""

    character: str
    ascii: str
    colour: str
    svg: str
    meaning: str


LOOKS = {
    "used": CellStyle("█", "#", COLOURS["used"], "#3a7d44", "in use"),
    "mixed": CellStyle("▓", "%", "\033[33m", "#c9a227", "partly in use"),
    "free": CellStyle("▒", "o", COLOURS["free"], "#d9822b", "free but resident"),
    "gone": CellStyle("░", ".", "\033[34m", "#c8d6e5", "free, not resident"),
    "top": CellStyle("▄", "^", COLOURS["top"], "#2e86ab", "top, resident"),
    "top gone": CellStyle("▁", "_", "\033[34m", "#dfe7ee", "top, not resident"),
    "other": CellStyle("▪", "+", COLOURS["overhead"], "#8e6fa8", "overhead or other"),
    "nothing": CellStyle("·", "-", "\033[2m", "#f4f4f4", "not resident"),
}
USED, FREE, TOP = "used", "free", "top"
# The kinds of free bytes, resident or not.
OF_FREE = ("free", "gone", "top", "top gone")


class FreeRun(NamedTuple):
    """A run of adjacent cells of a group in which nothing is in use.

    The fields are the group's name, the first cell's address, and how many bytes of the cells are free.
    """

    group: str
    start: int
    free: int


def look_of(cell: Cell) -> str:
    """Return the name of a cell's appearance, a key of LOOKS.

    The appearance is "used" if at least three quarters of the cell's bytes are in use, and "mixed" if at least a
    quarter is. Otherwise it is the largest kind of the cell's other bytes.
    """
    found = shares(cell)
    whole = sum(found.values())
    if found["used"] * 4 >= whole * 3:
        return "used"
    if found["used"] * 4 >= whole:
        return "mixed"
    del found["used"]
    return max(found, key=lambda kind: found[kind])


def shares(cell: Cell) -> dict[str, int]:
    """Return how many bytes of each kind a cell has. The kinds are "used", "free", "gone" (free, not resident), "top",
    "top gone", "other" and "nothing".
    """
    used, free, top = (_sum(cell.parts, state) for state in (USED, FREE, TOP))
    other = [part for part in cell.parts if part.state not in (USED, FREE, TOP)]
    found = dict.fromkeys(("used", "free", "gone", "top", "top gone", "other", "nothing"), 0)
    found["used"] = sum(used)
    found["free"], found["gone"] = free
    found["top"], found["top gone"] = top
    found["other"], found["nothing"] = _resident_and_not(other)
    return found


def _sum(parts: Iterable[CellPart], state: str) -> tuple[int, int]:
    """Return the sums of (resident bytes, bytes not resident) of the parts in this state."""
    return _resident_and_not([part for part in parts if part.state == state])


def _resident_and_not(parts: list[CellPart]) -> tuple[int, int]:
    """Return the sums of (resident bytes, bytes not resident) of these parts. If residency is unknown, all bytes count
    as resident.
    """
    there = sum(part.virtual if part.resident is None else part.resident for part in parts)
    return there, sum(part.virtual for part in parts) - there


def render(answer: HeapMap, style: Style, left_out: int, whole: HeapMap | None = None) -> str:
    """Return the text of the answer. It begins with how much memory is in use and free. Each group follows, as a title
    and its cells, then the legend.

    ``left_out``: how many groups the answer lacks because the list was cut.
    ``whole``: the answer with these groups.
    """
    if not answer.rows:
        return style.filled(
            "There is no memory to draw: the target has no memory that malloc or Python could have mapped."
        )
    drawn = [group for group in answer.rows if group.arena is not None or group.end - group.start >= answer.cell]
    return join(
        style.filled(_sums(whole or answer, style)),
        *(_drawn(group, style) for group in drawn),
        _left_out(answer, drawn, left_out),
        _legend(drawn, answer, style),
    )


def _sums(answer: HeapMap, style: Style) -> str:
    """Return sentences about all groups: how much of their memory is in use and free, and where the longest free run
    is.

    Only resident bytes count as in use, free or other memory, unless residency is unknown.
    """
    parts = [part for group in answer.rows for cell in group.cells for part in cell.parts]
    used, free, top = (_sum(parts, state)[0] for state in (USED, FREE, TOP))
    rest = _resident_and_not(parts)[0] - used - free - top
    whole = style.bytes(sum(group.end - group.start for group in answer.rows))
    is_known = all(group.resident is not None for group in answer.rows)
    resident = f", {style.bytes(sum(group.resident or 0 for group in answer.rows))} of it resident" if is_known else ""
    told = [f"{style.bytes(used)} in use", f"{style.bytes(free + top)} free"]
    told += [f"{style.bytes(rest)} other memory"] if rest else []
    return f"The map shows {whole}{resident}: {listed(told)}.{_longest_run(answer, style)}"


def _longest_run(answer: HeapMap, style: Style) -> str:
    """Return a sentence about the adjacent cells with the most free memory and nothing in use; "" if there are none."""
    runs = [run for group in answer.rows for run in _free_runs(group)]
    if not runs:
        return ""
    longest = max(runs, key=lambda run: run.free)
    where = f"{address_text(longest.start)} ({printable_record(longest.group)})"
    return f" The longest run without memory in use begins at {where} and has {style.bytes(longest.free)} free."


def _free_runs(group: MapGroup) -> Iterator[FreeRun]:
    """Yield the runs of adjacent cells in which nothing is in use and more than half of the bytes are free."""
    start, free = 0, 0
    for cell in group.cells:
        found = shares(cell)
        own = sum(found[kind] for kind in OF_FREE)
        if not found["used"] and 2 * own > sum(found.values()):
            start, free = start if free else cell.start, free + own
            continue
        if free:
            yield FreeRun(group.name, start, free)
        free = 0
    if free:
        yield FreeRun(group.name, start, free)


def _left_out(answer: HeapMap, drawn: list[MapGroup], left_out: int) -> str:
    """Return sentences about the groups that are not drawn."""
    small = len(answer.rows) - len(drawn)
    is_small = "area smaller than one character is", "areas smaller than one character are"
    is_left_out = "more area is left out", "more areas are left out"
    return "\n".join(
        [
            *([f"{counted(small, *is_small)} not drawn."] if small else []),
            *([f"{counted(left_out, *is_left_out)}; --top=all draws all areas."] if left_out else []),
        ]
    )


def _drawn(group: MapGroup, style: Style) -> str:
    across = max((style.width or WIDTH) - ADDRESS_WIDTH, MIN_CELLS_ACROSS)
    resident = "" if group.resident is None else f", {style.bytes(group.resident)} resident"
    huge = f", {style.bytes(group.huge)} in huge pages" if group.huge else ""
    title = f"{group.name}: {style.bytes(group.end - group.start)}{resident}{huge}"
    looks = [look_of(cell) for cell in group.cells]
    rows = [
        f"{group.cells[at].start:#014x} {_characters(looks[at : at + across], style)}"
        for at in range(0, len(looks), across)
    ]
    return "\n".join([style.heading(title), *rows])


def _characters(looks: list[str], style: Style) -> str:
    """Return one character for each cell. A run of equal cells has a single pair of colour escapes."""
    text, before = "", ""
    for kind in looks:
        look = LOOKS[kind]
        if style.bold and kind != before:
            text += (PLAIN if before else "") + look.colour
        text += look.ascii if style.ascii else look.character
        before = kind
    return text + (PLAIN if style.bold and before else "")


def _legend(drawn: list[MapGroup], answer: HeapMap, style: Style) -> str:
    looks = {look_of(cell) for group in drawn for cell in group.cells}
    known = [f"{_characters([kind], style)} {LOOKS[kind].meaning}" for kind in LOOKS if kind in looks]
    return f"One character stands for {style.bytes(answer.cell)}: {', '.join(known)}."
