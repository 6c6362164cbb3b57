"""``heap threads``: what do the threads run, and how large are their variables?"""

from __future__ import annotations

from gdbheap.answers import threads
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common
from gdbheap.heap import Heap
from gdbheap.report.graph import render_threads

__all__ = ["COMMAND"]


def _answer(heap: Heap, _options: Common) -> threads.Threads:
    return threads.threads(heap)


def _render(shown: Shown[threads.Threads, Common]) -> str:
    return render_threads(shown.answer, shown.style)


COMMAND = Command(
    noun="threads",
    question="What do the threads run, and how large are their variables?",
    text="""The Python frames of all threads, the innermost first, each with its local variables: the object, and the
    bytes of its block and of the buffers that it owns (a list's items, a dict's keys, but not what those refer to).""",
    example="heap threads",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    listed="",
)
