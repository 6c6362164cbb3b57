"""``heap why``: what keeps an object alive, from a root down?"""

from __future__ import annotations

from gdbheap.answers import why
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Addressed
from gdbheap.heap import Heap
from gdbheap.report.why import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Addressed) -> why.Why:
    return why.why(heap, options.address)


def _render(shown: Shown[why.Why, Addressed]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="why",
    question="What keeps this object alive, from a root down?",
    text="""A shortest chain of references from a root to the object, and the chain as a Python expression where there
    is one: evaluated in the program, it is that object. Chains from sys.modules come first, then those from the
    variables of running functions and from static types, then words in C structures that look like references, and
    last those on stacks and in the interpreter's own data.

    Its dominators, the objects without any one of which it would be free, are listed below, with the bytes that
    would be free with each of them.""",
    example="heap why 0x7f31c0de1230",
    needs=TARGET,
    options=Addressed,
    answer=_answer,
    render=_render,
    copies=True,
    listed="",
)
