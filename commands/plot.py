"""``gdbheap plot``: draw recordings as curves over time."""

from __future__ import annotations

import os

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import FILES
from gdbheap.commands.surface.options import Writing, valued
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError, one_line
from gdbheap.files import check_writable, write_bytes
from gdbheap.report.formats.plot import FORMS, picture
from gdbheap.report.formats.plot_page import page
from gdbheap.report.words.plot import notes_of, render
from gdbheap.sampling.curves import Plotted, curves_of, extents_of, joined, largest
from gdbheap.sampling.series import read

__all__ = ["COMMAND"]


@dataclass
class Options(Writing):
    """The options of ``gdbheap plot``. ``file``: the path of the picture, whose ending selects SVG, PNG or HTML."""

    file: str = valued("-o", "FILE", "write the picture to FILE.svg, FILE.png or FILE.html", "", str, needed=True)


def _answer(files: tuple[str, ...], options: Options) -> Plotted:
    form = os.path.splitext(options.file)[1][1:].lower()
    if form not in FORMS:
        raise UsageError("gdbheap plot: say where to write: -o FILE.svg, -o FILE.png or -o FILE.html")
    check_writable(options.file)
    series = {file: read(file) for file in files}
    processes = joined([one for file, found in series.items() for one in curves_of(found, file) if one.curves])
    if not processes:
        raise UsageError(f"gdbheap plot: {one_line(files[0])} has no samples")
    drawn = largest(processes)
    extents = [row for process in processes for row in extents_of(process)]
    cut = [file for file, found in series.items() if found.cut]
    answer = Plotted(options.file, 0, extents, len(processes) - len(drawn), cut)
    data = picture(drawn, "png" if form == "png" else "svg")
    written = data if form != "html" else page(data, extents, notes_of(answer))
    write_bytes(options.file, written, options.mode)
    return Plotted(options.file, len(written), extents, answer.not_drawn, cut)


def _render(shown: Shown[Plotted, Options]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="plot",
    summary="Plot a recording that 'gdbheap record' wrote",
    text="""Each of the 12 largest processes has a panel. The panel shows RSS, Python's arenas, and malloc's memory, in
    which the freed part is shaded. Drawing needs matplotlib: pip install 'gdbheap[plot]'.""",
    example="gdbheap plot -o memory.html",
    details="""One curve shows the memory that malloc got from the kernel, another one the part in use. Two more curves
    show Python's arenas, and the part of them in use. The gap between two curves of a pair is memory that the program
    freed. Marks show when a snapshot was written, when the process ran another program (exec), and when it ended. An
    HTML page also has a table of the first, last and highest values. The page needs no network and no script. If
    several files have parts of one recording (`record --rotate`), give them all: each process has one panel.""",
    needs=FILES,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
    writes=True,
)
