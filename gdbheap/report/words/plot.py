"""The text of ``gdbheap plot``: the path of the picture, and the first, last and highest value of each curve."""

from __future__ import annotations

from gdbheap.errors import one_line
from gdbheap.report.formats.plot import FIGURES
from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.sampling.curves import Plotted

__all__ = ["notes_of", "render"]

COLUMNS = (Column("pid"), Column("program", True), Column("figure", True), *map(Column, ("first", "last", "peak")))


def render(answer: Plotted, style: Style) -> str:
    """Return the text of the answer: the picture's path, and a table of the drawn figures. Each row has the first, last
    and highest value of one figure of a process.
    """
    rows = [
        [str(row.pid), one_line(row.program or "?", 40), FIGURES[row.figure], style.size(row.first),
         style.size(row.last), style.size(row.peak)]
        for row in answer.rows
    ]  # fmt: skip
    where = f"The picture is in {one_line(answer.file)} ({style.bytes(answer.size)})."
    notes = "\n".join(map(style.filled, notes_of(answer)))
    return join(style.filled(where), table(COLUMNS, rows, style), notes)


def notes_of(answer: Plotted) -> list[str]:
    """Return notes that a reader of the picture of a recording needs, such as which files end early."""
    notes = []
    if answer.not_drawn:
        smaller = counted(answer.not_drawn, "smaller process is", "smaller processes are")
        notes.append(f"{smaller} not drawn.")
    notes += [f"The last line of {one_line(file)} is incomplete and was left out." for file in answer.cut]
    return notes
