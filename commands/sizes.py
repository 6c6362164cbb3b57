"""``heap sizes``: how are chunk sizes distributed, used and free?"""

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
    question="How are chunk sizes distributed, used and free?",
    text="""Sizes are those of chunks: the request and eight bytes, in steps of 16. First there is a row for each range
    between powers of two, then one for each of the exact sizes that hold the most. Free chunks are those in bins, fast
    bins and thread caches; chunks with a mapping of their own count as used. Top chunks and fenceposts are neither.
    Where several modules bring the same allocator each has a table.""",
    example="heap sizes --sort=free_bytes",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    rows="sizes",
    listed="exact sizes",
    sorts={
        "bytes": lambda row: row.used_bytes + row.free_bytes,
        "used_bytes": lambda row: row.used_bytes,
        "free_bytes": lambda row: row.free_bytes,
        "used": lambda row: row.used,
        "free": lambda row: row.free,
        "size": lambda row: -row.size,
    },
    top=10,
)
