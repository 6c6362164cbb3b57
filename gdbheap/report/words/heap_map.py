"""The text of ``heap map``: one character for each cell, in colour if the terminal can show it, and a legend."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gdbheap.dataclass import dataclass
from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import COLOURS, PLAIN, Style
from gdbheap.report.text.tables import join

if TYPE_CHECKING:
    from gdbheap.answers.heap_map import Cell, Group, HeapMap, Part

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


def _sum(parts: Iterable[Part], state: str) -> tuple[int, int]:
    """Return the sums of (resident bytes, bytes not resident) of the parts in this state."""
    return _resident_and_not([part for part in parts if part.state == state])


def _resident_and_not(parts: list[Part]) -> tuple[int, int]:
    """Return the sums of (resident bytes, bytes not resident) of these parts. If residency is unknown, all bytes count
    as resident.
    """
    there = sum(part.virtual if part.resident is None else part.resident for part in parts)
    return there, sum(part.virtual for part in parts) - there


def render(answer: HeapMap, style: Style, left_out: int) -> str:
    """Return the text of the answer: the groups, each with a title and its cells, and the legend. ``left_out``: how
    many groups the answer lacks because the list was cut."""
    if not answer.rows:
        return style.filled(
            "There is no memory to draw: the target has no memory that malloc or Python could have mapped."
        )
    drawn = [group for group in answer.rows if group.arena is not None or group.end - group.start >= answer.cell]
    return join(
        *(_drawn(group, style) for group in drawn), _left_out(answer, drawn, left_out), _legend(drawn, answer, style)
    )


def _left_out(answer: HeapMap, drawn: list[Group], left_out: int) -> str:
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


def _drawn(group: Group, style: Style) -> str:
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


def _legend(drawn: list[Group], answer: HeapMap, style: Style) -> str:
    looks = {look_of(cell) for group in drawn for cell in group.cells}
    known = [f"{_characters([kind], style)} {LOOKS[kind].meaning}" for kind in LOOKS if kind in looks]
    return f"One character stands for {style.bytes(answer.cell)}: {', '.join(known)}."
