"""``heap unreachable``: list uncollected cycles and lost blocks."""

from __future__ import annotations

from gdbheap.answers import unreachable
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common
from gdbheap.heap import Heap
from gdbheap.report.words.unreachable import render_unreachable

__all__ = ["COMMAND"]


def _answer(heap: Heap, _options: Common) -> unreachable.Unreachable:
    return unreachable.unreachable(heap)


def _render(shown: Shown[unreachable.Unreachable, Common]) -> str:
    return render_unreachable(shown.answer, shown.style, shown.left_out)


COMMAND = Command(
    noun="unreachable",
    summary="List what is leaked: uncollected cycles and lost blocks",
    text="""Cycles wait for gc.collect(). Lost references are objects whose reference count exceeds the number of
    references that were found. Lost blocks are blocks to which nothing points. Doubtful blocks are reached only by weak
    pointers, such as stale words.""",
    example="heap unreachable",
    details="""Each row describes the blocks of one type and size. The bytes of a row include the buffers that the
    blocks own.

    Cycles are objects that are kept alive only by references from one another, and all that they keep alive. The answer
    names the references that close the cycles. gc.collect() frees the cycles, unless the row says why not. The reason
    is gc.freeze(), a type that hides references from the collector, or `__del__` in Python 2.

    Lost references are objects whose reference count is too high: a library took a reference and never released it. An
    object with a lost reference is never freed, and neither are the objects that it keeps alive.

    Lost blocks are blocks to which nothing points, except perhaps other lost blocks. The program can free a lost block
    only if it computes the block's address. A program may compute an address from a compressed or hidden pointer, or an
    integer of Python (ctypes, cffi).

    Doubtful blocks are reached only by weak pointers. A pointer is weak if it lies on a thread's stack or in a
    register. A pointer into the middle of a block is also weak. Words after the last item of a C++ container are also
    weak. Words with a tag in the upper 16 bits are weak, too. A running function may still use a doubtful block. If the
    word is stale, or is a number, the block is lost.

    In a program without Python, all words count as pointers. gdbheap reads static data, threads' data, used stacks,
    registers, blocks that these reach, and memory that the program mapped. Mapped files on a disk are not read. Heads
    come first: lost blocks to which no other lost block points. If lost blocks form a cycle, one of them is also a
    head. Each row says how many blocks, and how many bytes, would be freed with the head. A row of blocks without a
    type says what most of them look like: text, zeros, pointers or data. If a core is truncated, its missing memory may
    point to any block. No block then counts as lost.

    If some references could not be read, only cycles that are proven complete have rows. One line, "not examined",
    shows all other bytes that no root reaches.""",
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
