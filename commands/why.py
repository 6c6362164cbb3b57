"""``heap why``: show what keeps an object alive, from a root down."""

from __future__ import annotations

from dataclasses import replace

from gdbheap.answers import why
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Addressed, recorded_calls
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.report.words.why import render

__all__ = ["COMMAND"]


@dataclass
class Options(Addressed):
    """The options of ``heap why``. ``calls``: the path of a trace in which to find the stack that allocated the block,
    or None.
    """

    calls: str | None = recorded_calls()


def _answer(heap: Heap, options: Options) -> why.Why:
    found = why.why(heap, options.address, options.share)
    if options.calls is None:
        return found
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.tracing.block_makers import maker

    return replace(found, made=maker(options.calls, heap.target.pid, found.address))


def _render(shown: Shown[why.Why, Options]) -> str:
    return render(shown.answer, shown.style, shown.options.calls is not None)


COMMAND = Command(
    noun="why",
    summary="Show what keeps an object alive, from a root down",
    text="""The answer shows a shortest chain of references from a root to the object. If possible, it is also shown as
    a Python expression. Dominators follow: removing any one of them would free the object.""",
    example="heap why 0x7f31c0de1230",
    details="""If the program evaluates the expression, it gets this object. gdbheap prefers chains from sys.modules,
    then chains from variables of running functions and from static types. Chains through words in C
    structures that look like references come third. Chains from words on stacks and in the interpreter's own data come
    last.

    Each dominator is shown with the bytes that would be freed with it. If the chain of dominators is long, only its two
    ends are shown. If a core is truncated, its missing memory may also point to the object. If some references could
    not be read, only proven dominators and retained bytes are shown. `--calls` adds the stack that allocated the
    object's block, as in `heap at`.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
)
