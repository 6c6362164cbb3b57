"""``heap at``: what is at this address, and who owns it?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers import at
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Addressed, switch
from gdbheap.heap import Heap
from gdbheap.report.at import render

__all__ = ["COMMAND"]


@dataclass
class Options(Addressed):
    """The options of heap at."""

    path: bool = switch("--path", "also show the path from a root to it (reads all references)")


def _answer(heap: Heap, options: Options) -> at.At:
    return at.at(heap, options.address, options.path)


def _render(shown: Shown[at.At, Options]) -> str:
    return render(shown.answer, shown.style, shown.options.address)


COMMAND = Command(
    noun="at",
    question="What is at this address, and who owns it?",
    text="""The mapping, the allocator's block, the Python object in it, and, for a buffer, the object that owns it.
    Any address inside a block will do.""",
    example="heap at 0x7f31c0de1230",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
)
