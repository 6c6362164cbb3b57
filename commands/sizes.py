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

    In JSON, sizes has a row for each exact size; total {used, free, used_bytes, free_bytes} is its sum. used_bytes,
    free_bytes, top and overhead (fenceposts, headers of heaps, what others got from sbrk) add up to the total.system
    of heap arenas; mapped is how many of the used chunks have a mapping of their own. others
    has {allocator, title, sizes, total, asked, freed, module} of each allocator that is there in malloc's place or
    beside it and is walked: its blocks by its own sizes, without headers; free are those for which its pages have room.
    Where several modules bring the same allocator each has a table (module says which; else it is null). Each of
    its sizes has groups too, the slabs or pages in which its blocks lie; asked, the bytes that the program asked for of
    those in use (musl's since 1.2.1, mimalloc's secure and debug builds); spare, the groups of jemalloc and mimalloc
    that would go if the blocks lay packed in the others, and freed, the resident bytes of that. They are null where
    nobody knows.""",
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
