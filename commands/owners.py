"""``heap owners``: who keeps the large blocks?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers import owners
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, minimum_size, one_of, valued
from gdbheap.heap import Heap
from gdbheap.report.graph import render_owners

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of heap owners."""

    minimum: int = minimum_size()
    by: str = valued(
        "--by", "GROUP",
        "block, or, of a program without Python, type, global or thread: blocks of one kind that one of them holds are"
        " one row; the default is block", owners.BLOCK, one_of(owners.GROUPS),
    )  # fmt: skip


def _answer(heap: Heap, options: Options) -> owners.Owners:
    return owners.owners(heap, options.minimum, options.top, options.by)


def _render(shown: Shown[owners.Owners, Options]) -> str:
    return render_owners(shown.answer, shown.style)


COMMAND = Command(
    noun="owners",
    question="Who keeps the large blocks, and how are those reached?",
    text="""A row for each large block of pymalloc and glibc: its size, the Python object that it is or belongs to,
    and the path from a root to that object: as Python where there is an expression, else in words.

    Of a program without Python the path leads from a global (by its symbol, or its section where the program has no
    symbols), from data of a thread or from a frame on its stack, over the offsets of the words that lead from block to
    block. --by=global and --by=thread put the blocks of one kind together that hang on one of them: each block is in
    the row of the root from which the shortest chain leads to it. In JSON these rows are groups: {root, kind, what,
    count, bytes}.""",
    example="heap owners --min=1M --top=10",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    copies=True,
    listed="blocks",
    top=20,
)
