"""``heap threads``: list the threads' frames and the sizes of their variables."""

from __future__ import annotations

from gdbheap.answers import threads
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, switch
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.report.words.threads import render_threads

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of ``heap threads``: whether to show values of variables, and C frames between Python frames."""

    values: bool = switch("--values", "show the shortened values of variables")
    with_c: bool = switch("--c-frames", "show C frames between Python frames, where unwind tables allow it")


def _answer(heap: Heap, options: Options) -> threads.Threads:
    return threads.threads(heap, options.values, options.with_c)


def _render(shown: Shown[threads.Threads, Options]) -> str:
    return render_threads(shown.answer, shown.style)


COMMAND = Command(
    noun="threads",
    summary="List threads' frames and the sizes of their variables (Python)",
    text="""Each variable has two figures: the bytes of its object including buffers, and the bytes that would be freed
    without the variable (retained). Threads at the same lines are shown once, with the number of these threads.""",
    example="heap threads --values",
    details="""The innermost frame comes first. An object's bytes are its block and the buffers that it owns: a
    list's items, a dict's keys. Objects to which these blocks refer do not count. The line of a frame shows the
    bytes that its variables retain together. A thread retains the memory that would be freed if none of its frames
    held anything. The text does not show every frame of a stack of more than 100 frames. It shows the 50 innermost,
    the 20 outermost, and 10 others that retain the most. Threads at the same lines of the same functions share one
    paragraph, with the variables of the first thread; `--json` lists each thread. `--c-frames` also works for
    programs without Python.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
)
