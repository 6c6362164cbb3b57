"""``heap owners``: who holds what is in use?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers import owners
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Pictured, one_of, valued
from gdbheap.heap import Heap
from gdbheap.report.graph import render_owners
from gdbheap.report.numbers import parse_size

__all__ = ["COMMAND"]


@dataclass
class Options(Pictured):
    """The options of heap owners."""

    minimum: int | None = valued(
        "--min", "SIZE",
        "leave out blocks that are smaller; with --by=block the default is 1M (K, M, G and T are powers of 1024)", None,
        parse_size,
    )  # fmt: skip
    by: str = valued(
        "--by", "GROUP",
        "holder, or block: a row for each large block; of a program without Python also type, global or thread; the"
        " default is holder", owners.HOLDER, one_of(owners.GROUPS),
    )  # fmt: skip


def _answer(heap: Heap, options: Options) -> owners.Owners:
    options.check_pictures()
    if options.pictures:
        # A path may have keys in it, and what is written holds no contents.
        heap.disclosure.contents = False
    found = owners.owners(heap, options.minimum, options.top, options.by)
    if options.pictures:
        from gdbheap.report.trees import owners_tree, write_pictures

        write_pictures(options.pictures, owners_tree(found), "Who holds what is in use")
    return found


def _render(shown: Shown[owners.Owners, Options]) -> str:
    return render_owners(shown.answer, shown.style)


COMMAND = Command(
    noun="owners",
    question="Who holds what is in use, and how is that reached?",
    text="""Each block in use is in one row. In a program with Python the rows are packages (their modules, classes and
    functions, and what only leads from there), variables that have much with all that they lead to, each by its path,
    frames that run, data of libraries, the interpreter itself, and what nothing leads to; of two holders that lead to a
    block the one with the shorter chain has it. What has less than a fiftieth of what is in use is part of its package,
    and small packages are one row.

    In a program without Python a row is the blocks of one kind to which the shortest chains lead from one global (by
    its symbol, or its section where the program has no symbols), one thread's data or stack, or other memory.
    --by=global, --by=thread and --by=type are some of these rows, or put them together.

    --by=block is a row for each large block: its size, the Python object that it is or belongs to, and the path from a
    root to that object: as Python where there is an expression, else in words. Without Python the path leads over the
    offsets of the words that lead from block to block. In JSON blocks are owners; holders are groups: {root, kind,
    what, count, bytes, path, parts}. --folded, --svg, --speedscope and --pprof draw them, with what they hold above
    them.""",
    example="heap owners --top=10",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    copies=True,
    listed="rows",
    writes=True,
    top=20,
)
