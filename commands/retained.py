"""``heap retained``: list the objects that keep the most memory alive."""

from __future__ import annotations

from gdbheap.answers import retained
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import MaybeAddressed, Pictured, one_of, valued
from gdbheap.commands.surface.pictures import draw
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.report.words.retained import render_retained

__all__ = ["COMMAND"]


@dataclass
class Options(Pictured, MaybeAddressed):
    """The options of ``heap retained``. ``by``: how to group the memory: by object, type, module, global or thread."""

    by: str = valued(
        "--by",
        "GROUP",
        "group memory by object, type, module, global or thread [default: object]",
        "object",
        one_of(retained.GROUPS),
    )


def _answer(heap: Heap, options: Options) -> retained.Retained:
    if options.draws:
        from gdbheap.answers.dominator_tree import dominator_tree
        from gdbheap.report.formats.trees import retained_tree

        draw(options, retained_tree(dominator_tree(heap)), "Memory that objects retain")
    if options.address is not None:
        return retained.retained_set(heap, options.address, options.share)
    return retained.retained(heap, options.by, options.top)


def _render(shown: Shown[retained.Retained, Options]) -> str:
    return render_retained(shown.answer, shown.style, shown.options.by)


COMMAND = Command(
    noun="retained",
    summary="List the objects that keep the most memory alive",
    text="""An object retains all memory that would be freed with it: its own block, and every block that only this
    object reaches. Modules have rows only with --by=module.""",
    example="heap retained --top=20 --by=type",
    details="""An object has no row in three cases, if the object that keeps it alive has a row. First,
    both objects have the same type, as in a linked list. Second, both retain the same number of bytes, within 1 %.
    Third, the object retains only itself. Modules and their dicts have no rows, because the objects that they
    hold have rows. An exception is a file that was loaded as several modules. Static variables of libraries that have
    symbols, other data of libraries, and tracemalloc's tables also have rows.

    A figure with "at most" includes blocks of C code that the object owns and that other objects may hold. A column
    names these other holders. The bytes in the column "retained" are certain. A row may stand for several objects that
    retain the same bytes. The row shows the path of the outermost object that source code can name. The path is a
    Python expression if possible; otherwise it is a text.

    Shares of RSS count only the resident pages of large blocks. Resident bytes have a column of their own
    if some bytes are not resident. A share is unknown if the counted bytes exceed RSS.

    Memory that an object mapped is added to that object. mmap.mmap, numpy.memmap, SharedMemory, and mapped files of
    Arrow and torch can map memory. If other processes also map the memory, it is unmapped with the object but not
    freed.

    If some references could not be read, an object retains "at least" the proven bytes, and groups have no rows. One
    line, "not examined", shows the bytes that no object is proven to retain.

    `--by=type` shows what would be freed with all objects of a type, including what several of them hold together.
    `--by=module` shows what would be freed with a module and its dict. A possibly stale word counts as a reference to a
    Python object only if the object has no certain reference. For a block of C code, every word in used memory that
    points to the block counts as a reference. Words on stacks do not count.

    In a program without Python, each block counts as an object. A variable has a row of its own if no block retains
    half of the variable's memory. An example is the head of a list that points to both ends. `--by=global` shows what
    would be freed if a global held nothing. `--by=thread` shows what would be freed if a thread's stack and data held
    nothing. If ADDRESS is given, the answer lists the memory that would be freed with that block, by type or size.
    ADDRESS may also be the name of a variable of C or C++.

    `--format` and the options for its formats draw the tree of dominators. The tree has the 500 objects that retain
    the most, each above its dominator.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="rows",
    writes=True,
    top=20,
)
