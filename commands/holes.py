"""``heap holes``: which free memory is not given back, where is it, and what pins it?"""

from __future__ import annotations

from gdbheap.answers import holes
from gdbheap.commands.declaration import MINIMUM, Command, Options, Shown
from gdbheap.heap import Heap
from gdbheap.report.holes import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Options) -> holes.Holes:
    """Neighbours are described only for what is listed, which takes the list in the answer's own order: by size."""
    return holes.holes(heap, options.minimum, options.top if options.sort == "size" else None)


def _render(shown: Shown[holes.Holes]) -> str:
    return render(shown.answer, shown.style, shown.options.minimum)


COMMAND = Command(
    noun="holes",
    question="Which free memory is not given back, where is it, and what pins it?",
    text="""A hole is a maximal run of bytes inside an arena that nobody holds, whatever list its pieces are on; the top
    of a heap is not a hole. A row a hole: how much of it is resident, and the blocks below and above it that are held.
    The figures in the total are those of all holes that match, also when --top cuts the list.""",
    example="heap holes --min=1M",
    answer=_answer,
    render=_render,
    options=(MINIMUM,),
    defaults={"minimum": 1 << 20},
    rows="holes",
    listed="holes",
    sorts={
        "size": lambda hole: hole.size,
        "resident": lambda hole: hole.resident,
        "address": lambda hole: -hole.address,
        "arena": lambda hole: None if hole.arena is None else -hole.arena,
        "allocator": lambda hole: hole.allocator,
    },
)
