"""``heap why``: what keeps an object alive, from a root down?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gdbheap.answers import why
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Addressed, recorded_calls
from gdbheap.heap import Heap
from gdbheap.report.words.why import render

__all__ = ["COMMAND"]


@dataclass
class Options(Addressed):
    """The options of heap why."""

    calls: str | None = recorded_calls()


def _answer(heap: Heap, options: Options) -> why.Why:
    found = why.why(heap, options.address)
    if options.calls is None:
        return found
    # Imported where it is needed: a command's start is mostly imports.
    from gdbheap.tracing.block_makers import maker

    return replace(found, made=maker(options.calls, heap.target.pid, found.address))


def _render(shown: Shown[why.Why, Options]) -> str:
    return render(shown.answer, shown.style, shown.options.calls is not None)


COMMAND = Command(
    noun="why",
    question="What keeps this object alive, from a root down?",
    text="""A shortest chain of references from a root to the object, and the chain as a Python expression where there
    is one: evaluated in the program, it is that object. Chains from sys.modules come first, then those from the
    variables of running functions and from static types, then words in C structures that look like references, and
    last those on stacks and in the interpreter's own data.

    Its dominators, the objects without any one of which it would be free, are listed below, with the bytes that would
    be free with each of them; of a long chain both ends are listed. A core that is cut short lacks memory, which may
    lead to an object that nothing else leads to. If some references could not be read, dominators and what they retain
    are those that are proven. --calls adds the stack that made the object's block, as in heap at.""",
    example="heap why 0x7f31c0de1230",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="",
)
