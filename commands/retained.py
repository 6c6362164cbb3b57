"""``heap retained``: which objects would free the most if they went?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers import retained
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import MaybeAddressed, Pictured, one_of, valued
from gdbheap.commands.surface.pictures import draw
from gdbheap.heap import Heap
from gdbheap.report.words.graph import render_retained

__all__ = ["COMMAND"]


@dataclass
class Options(Pictured, MaybeAddressed):
    """The options of heap retained."""

    by: str = valued(
        "--by", "GROUP",
        "object, type or module; of a program without Python object (a block), type, global or thread; the default is"
        " object", "object", one_of(retained.GROUPS),
    )  # fmt: skip


def _answer(heap: Heap, options: Options) -> retained.Retained:
    if options.draws:
        from gdbheap.answers.dominator_tree import dominator_tree
        from gdbheap.report.formats.trees import retained_tree

        draw(options, retained_tree(dominator_tree(heap)), "What objects retain")
    if options.address is not None:
        return retained.retained_set(heap, options.address)
    return retained.retained(heap, options.by, options.top)


def _render(shown: Shown[retained.Retained, Options]) -> str:
    return render_retained(shown.answer, shown.style, shown.options.by)


COMMAND = Command(
    noun="retained",
    question="Which objects would free the most if they went?",
    text="""What an object retains is its own block and all blocks that nothing else reaches: what would be free
    without it. An object has no row of its own if the object that keeps it alive has one and both are of one type, as
    in a linked list, or both retain the same to a hundredth, or the inner one retains nothing but itself. Modules and
    their dicts have no rows, so what they hold has; --by=module lists them. A file that was loaded as several modules
    has a row, and so have static variables of libraries, by their symbols, other data of a library, and the tables of
    tracemalloc. "At most" counts blocks of C code that the object owns and that others may hold as well, which holders
    names; retained is what goes for certain. Where objects of a row retain the same, the row has the path of the
    outermost one that source code can write: a Python expression if there is one, else words.

    Shares of RSS leave out what is not resident of large blocks: where that changes them, resident is a column. A
    share is unknown where more than RSS is left.

    Memory that objects mapped (mmap.mmap, numpy.memmap, SharedMemory, Arrow's and torch's mapped files) counts for
    them. Memory that other processes map too is unmapped without its object, not freed.

    If some references could not be read, an object retains "at least" what is proven, and groups have no rows; the
    rest is one line, "not examined".

    By type it is what would be free if all objects of the type went, with what several of them hold together; by
    module, if the module and its dict did. A word that an earlier use of its memory may have left (on a stack, in a
    block of C code) counts as a reference to a Python object only where no certain reference leads there. To a block
    of C code, every word in memory in use counts as a reference, and none on a stack does.

    Of a program without Python the objects are its blocks, and by global or thread it is what would be free without
    what that global, or the stack and the data of that thread, hold. With an ADDRESS the rows are what would be free
    with the block that holds it, by type or size: it and all that only it keeps.

    --format, --folded, --svg, --speedscope and --pprof draw the tree of dominators: the 500 objects that retain the
    most, each above the one without which it would not be reached, as wide as what it retains.""",
    example="heap retained --top=20 --by=type",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="rows",
    writes=True,
    top=20,
)
