"""``heap threads``: what do the threads run, and how large are their variables?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers import threads
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, switch
from gdbheap.heap import Heap
from gdbheap.report.words.graph import render_threads

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of heap threads."""

    values: bool = switch("--values", "also show what the variables are, in short")
    with_c: bool = switch("--c-frames", "also show the frames of C between those of Python, where unwind tables tell")


def _answer(heap: Heap, options: Options) -> threads.Threads:
    return threads.threads(heap, options.values, options.with_c)


def _render(shown: Shown[threads.Threads, Options]) -> str:
    return render_threads(shown.answer, shown.style)


COMMAND = Command(
    noun="threads",
    question="What do the threads run, and how large are their variables? (Python)",
    text="""The Python frames of all threads, the innermost first, each with its local variables: the object, and the
    bytes of its block and of the buffers that it owns (a list's items, a dict's keys, but not what those refer to),
    and what it retains: what would be free without it. The line of a frame says what its variables retain together. A
    thread keeps what would be free if none of its frames held anything. Threads that are at the same lines of the same
    functions are one paragraph, with how many there are and the variables of the first of them; --json has each by
    itself. --c-frames also takes programs without Python, whose frames are all of C.""",
    example="heap threads --values",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
)
