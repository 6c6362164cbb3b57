"""``heap unreachable``: what does nothing keep alive?"""

from __future__ import annotations

from gdbheap.answers import unreachable
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common
from gdbheap.heap import Heap
from gdbheap.report.words.graph import render_unreachable

__all__ = ["COMMAND"]


def _answer(heap: Heap, _options: Common) -> unreachable.Unreachable:
    return unreachable.unreachable(heap)


def _render(shown: Shown[unreachable.Unreachable, Common]) -> str:
    return render_unreachable(shown.answer, shown.style, shown.left_out)


COMMAND = Command(
    noun="unreachable",
    question="What is leaked: uncollected cycles, lost references and lost blocks?",
    text="""A row for each type and size of block, in four groups: its bytes are those of count blocks of the size each
    and of the buffers that they own. Cycles are objects all of whose references come from one another, as the garbage
    collector counts them, and what hangs on them; the references that close them have names. gc.collect() frees them,
    but for those whose row says why not: objects that gc.freeze() put aside, objects of a type whose references the
    collector does not see, __del__ in Python 2. Lost references are objects that have more references than exist: a
    library took one and never gave it back, and neither gc.collect() nor anything else frees the object and what hangs
    on it. Lost blocks are memory to which nothing points, or only other lost blocks do: nobody can free it any more,
    unless the program computes its address, from a compressed or hidden pointer, or an integer of Python (ctypes,
    cffi). Doubtful is what only weak words point to: words on a thread's stack, in a register, into the middle of a
    block, behind the last item of a container of C++, or with a tag in the upper 16 bits. A running function uses it,
    or the word is left over, or a number, and the block is lost as well.

    Of a program without Python all words count: those of static data, of data of threads, of what is in use of their
    stacks, of registers, of memory that the program mapped itself (shared memory too, but for files on a disk), and of
    blocks that these lead to. First come the heads of what is lost: blocks to which no other lost block leads, or one
    of a circle, with how many blocks hang on each and how much would be free with it. Blocks without a type have what
    most of them look like (text, zeros, pointers, data). A core that is cut short lacks memory that may lead to all of
    them: then none is said to be lost.

    If some references could not be read, only cycles have rows, of objects that hold all of one another's references;
    the rest is one line, "not examined".""",
    example="heap unreachable",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="rows",
    sorts={
        "bytes": lambda row: row.bytes,
        "count": lambda row: row.count,
        "size": lambda row: row.size,
    },
    top=20,
)
