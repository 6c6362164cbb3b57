"""``heap at``: describe an address, and the owner of its block."""

from __future__ import annotations

from dataclasses import replace

from gdbheap.answers import at
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Addressed, recorded_calls, switch
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.report.words.at import render

__all__ = ["COMMAND"]


@dataclass
class Options(Addressed):
    """The options of ``heap at``: whether to show the path to the block, and the trace that has the call that allocated
    it.
    """

    path: bool = switch("--path", "show the path from a root to the block (reads all references)")
    calls: str | None = recorded_calls()


def _answer(heap: Heap, options: Options) -> at.At:
    found = at.at(heap, options.address, options.path)
    if options.calls is None:
        return found
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.tracing.block_makers import maker

    return replace(found, made=maker(options.calls, heap.target.pid, options.address))


def _render(shown: Shown[at.At, Options]) -> str:
    options = shown.options
    return render(shown.answer, shown.style, options.address, options.calls is not None)


COMMAND = Command(
    noun="at",
    summary="Show what is at an address, and who owns it",
    text="""ADDRESS may be any address inside a block. The answer shows the mapping and the block at ADDRESS, and the
    Python object in the block. If the block is a buffer, the answer also names its owner.""",
    example="heap at 0x7f31c0de1230",
    details="""A table lists the largest blocks to which the block at ADDRESS points. In a program with Python, a static
    variable of a library may point to the block; the answer then names the variable. If the program runs tracemalloc,
    the answer shows the line of Python that allocated the block. If the block holds values of a DataFrame, a table or
    an array, the answer names it. The line of the mapping says how much of the mapping is in transparent huge pages.

    `--calls` takes a trace of this process that `gdbheap trace --stacks` wrote. For a core, the trace must have been
    written before the program ended. The answer then shows the stack that allocated the block. If the trace has only a
    sample of the stacks, most blocks have no stack.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
)
