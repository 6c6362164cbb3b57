"""``heap sizes``: show how the sizes of used blocks and of free blocks are distributed."""

from __future__ import annotations

from gdbheap.answers import sizes
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common
from gdbheap.heap import Heap
from gdbheap.report.words.sizes import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Common) -> sizes.Sizes:
    return sizes.sizes(heap)


def _render(shown: Shown[sizes.Sizes, Common]) -> str:
    return render(shown.answer, shown.whole, shown.style)


COMMAND = Command(
    noun="sizes",
    summary="Show the distribution of block sizes, in use and free",
    text="""The size of a chunk is the requested size plus eight bytes, rounded up to a multiple of 16. The first table
    groups sizes between powers of two. The second table shows the exact sizes with the most bytes.""",
    example="heap sizes --sort=free",
    details="""Free blocks are the blocks in bins, fast bins and thread caches. Large blocks (mmap) count as used. Top
    chunks and fenceposts count as neither used nor free. If several program or library files contain the same
    allocator, each copy of it has a table.""",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    rows="sizes",
    listed="exact sizes",
    sorts={
        "bytes": lambda row: row.used + row.free,
        "used": lambda row: row.used,
        "free": lambda row: row.free,
        "used_count": lambda row: row.used_count,
        "free_count": lambda row: row.free_count,
        "size": lambda row: -row.size,
    },
    top=10,
)
