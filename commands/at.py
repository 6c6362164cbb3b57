"""``heap at``: what is at this address, and who owns it?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gdbheap.answers import at
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Addressed, recorded_calls, switch
from gdbheap.heap import Heap
from gdbheap.report.words.at import render

__all__ = ["COMMAND"]


@dataclass
class Options(Addressed):
    """The options of heap at."""

    path: bool = switch("--path", "also show the path from a root to it (reads all references)")
    calls: str | None = recorded_calls()


def _answer(heap: Heap, options: Options) -> at.At:
    found = at.at(heap, options.address, options.path)
    if options.calls is None:
        return found
    # Imported where it is needed: a command's start is mostly imports.
    from gdbheap.tracing.block_makers import maker

    return replace(found, made=maker(options.calls, heap.target.pid, options.address))


def _render(shown: Shown[at.At, Options]) -> str:
    options = shown.options
    return render(shown.answer, shown.style, options.address, options.calls is not None)


COMMAND = Command(
    noun="at",
    question="What is at this address, and who owns it?",
    text="""The mapping, the allocator's block, the Python object in it, and, for a buffer, the object that owns it.
    Any address inside a block will do. Below that are the largest blocks to which its words lead. In a program with
    Python, a block to which a static variable of a library leads has the variable's name. Where the program runs
    tracemalloc, the line of Python that allocated the block is shown. Of values of a DataFrame, a table or an array it
    says which. The mapping's line says how much of it is in transparent huge pages.

    With --calls and the log of a process that gdbheap trace --stacks records, or had recorded when this core was
    written, the stack is shown that made the block: where it was sampled, most blocks have none.""",
    example="heap at 0x7f31c0de1230",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
)
