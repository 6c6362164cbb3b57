"""``heap at``: what is at this address, and who owns it?"""

from __future__ import annotations

from gdbheap.answers import at
from gdbheap.commands.surface.declaration import Argument, Command, Option, Options, Shown, address_of
from gdbheap.heap import Heap
from gdbheap.report.at import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Options) -> at.At:
    return at.at(heap, address_of("at", options), options.path)


def _render(shown: Shown[at.At]) -> str:
    return render(shown.answer, shown.style, address_of("at", shown.options))


COMMAND = Command(
    noun="at",
    question="What is at this address, and who owns it?",
    text="""The mapping, the allocator's block, the Python object in it, and the object that owns it when it is a
    buffer. An address inside a block is as good as its first byte.""",
    example="heap at 0x7f31c0de1230",
    answer=_answer,
    render=_render,
    argument=Argument("ADDRESS", "in gdb any expression, in a shell hexadecimal (0x…) or decimal"),
    options=(Option("--path", "path", "", "also say how a root leads there (reads all references)"),),
    listed="",
)
