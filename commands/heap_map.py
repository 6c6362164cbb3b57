"""``heap map``: draw each arena and mapping, cell by cell."""

from __future__ import annotations

from gdbheap.answers import heap_map
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Writing, valued
from gdbheap.dataclass import dataclass
from gdbheap.errors import one_line
from gdbheap.files import write_text
from gdbheap.heap import Heap
from gdbheap.report.formats.svg import picture
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.heap_map import render

__all__ = ["COMMAND"]

CELLS_OF_PICTURE = 8000


@dataclass
class Options(Writing):
    """The options of ``heap map``: the SVG file to write, and the size of a cell in bytes (0: about 1,200 cells)."""

    svg: str | None = valued("--svg", "FILE", "write an SVG picture with more and smaller cells", None, str)
    cell: int = valued(
        "--cell", "SIZE", "set how many bytes one cell stands for [default: about 1,200 cells]", 0, parse_size
    )


def _answer(heap: Heap, options: Options) -> heap_map.HeapMap:
    if options.svg is None:
        return heap_map.heap_map(heap, options.cell)
    answer = heap_map.heap_map(heap, options.cell, CELLS_OF_PICTURE)
    write_text(options.svg, picture(answer, _title(heap)), options.mode)
    return answer


def _title(heap: Heap) -> str:
    target = heap.target
    where = f"process {target.pid}" if target.kind == "process" else f"core {one_line(target.core or '')}"
    return f"Heap of {where}, {one_line(target.exe or 'an unknown program')}"


def _render(shown: Shown[heap_map.HeapMap, Options]) -> str:
    if shown.options.svg is not None:
        return f"The picture is in {one_line(shown.options.svg)}."
    return render(shown.answer, shown.style, shown.left_out, shown.raw)


COMMAND = Command(
    noun="map",
    summary="Draw each arena and mapping, cell by cell",
    text="""Each character stands for a cell of address space. A cell is drawn as in use if at least three quarters of
    it are used. From a quarter, it is drawn as partly used. The other cells are free but resident, free and returned,
    top of a heap, or other.""",
    example="heap map --svg=heap.svg",
    details="""The picture shows malloc's arenas, large blocks (mmap), pymalloc's arenas and other memory, each on
    separate lines. On a terminal, the picture is in colour, unless NO_COLOR is set. If the terminal supports nothing
    else, the picture uses only ASCII. If the kernel reports huge pages (Linux 6.7), a group's title says how much of
    it is in huge pages.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="groups",
    sorts={
        "size": lambda group: group.end - group.start,
        "resident": lambda group: group.resident,
        "address": lambda group: -group.start,
    },
    top=40,
    writes=True,
)
