"""``heap at``: show what is at an address, and who owns it."""

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

    path: bool = switch("--path", "show the path from a root (reads all references)")
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
    text="""Any address inside a block will do. The answer has the mapping, the block, the Python object in it, and,
    for a buffer, its owner.""",
    example="heap at 0x7f31c0de1230",
    details="""The next rows are the largest blocks to which this block points. In a program with Python, a block that a
    library's static variable points to has the variable's name. A program that runs tracemalloc adds the line of Python
    that allocated the block. If the block holds values of a DataFrame, a table or an array, the answer names it. The
    mapping's line says how much of it is in transparent huge pages.

    `--calls` takes a trace of this process from `gdbheap trace --stacks`; for a core, one that was written earlier. The
    answer then has the stack that allocated the block. If stacks were sampled, most blocks have no stack.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
)
