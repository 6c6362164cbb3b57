"""``heap unreachable``: what does nothing keep alive?"""

from __future__ import annotations

from gdbheap.answers import unreachable
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common
from gdbheap.heap import Heap
from gdbheap.report.graph import render_unreachable

__all__ = ["COMMAND"]


def _answer(heap: Heap, _options: Common) -> unreachable.Unreachable:
    return unreachable.unreachable(heap)


def _render(shown: Shown[unreachable.Unreachable, Common]) -> str:
    return render_unreachable(shown.answer, shown.style, shown.left_out)


COMMAND = Command(
    noun="unreachable",
    question="What does nothing keep alive: cycles that were not collected, and blocks that were lost?",
    text="""A row for each type and size of block. Objects are listed if nothing refers to them, or if what does
    proves nothing (a word on a stack or in a C structure) and the objects in question hold all of one another's
    references, as the garbage collector counts them. They are cycles that have not been collected yet, or objects
    whose references were not given back. Blocks that are not objects are listed if nothing points to them or into
    them: memory that nobody can free any more. Blocks to which only stray words point (on a thread's stack, in a
    register, or into the middle) have rows of their own: a running function has them, or something that counts from
    the middle; or the word is left over, or a number, and they are lost as well.

    Of a program without Python all words count: those of static data, of data of threads, of what is in use of their
    stacks, of registers, of memory that the program mapped itself, and of blocks that these lead to. First come the
    heads of what is lost: blocks to which no other lost block leads, or one of a circle, with how many blocks hang on
    each and how much would be free with it. Blocks to which only words into their middle lead are apart: a program may
    count from there. Blocks without a type have what most of them look like (text, zeros, pointers, data). A core that
    is cut short lacks memory that may lead to all of them: then none is said to be lost.

    Where not all references could be read, only objects have rows that hold all of one another's references; the rest
    is one line, "not examined" (in JSON: not_examined, and next, the commands that would examine it).

    In JSON, heads is a list of at most 1,000 of head_count heads: {address, size, type, count, retained, in_circle,
    content}; lacking is how many bytes of the program's memory the core lacks.""",
    example="heap unreachable",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    copies=True,
    rows="rows",
    listed="rows",
    sorts={
        "together": lambda row: row.bytes + row.buffers,
        "bytes": lambda row: row.bytes,
        "count": lambda row: row.count,
        "size": lambda row: row.size,
    },
    top=20,
)
