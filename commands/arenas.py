"""``heap arenas``: list malloc's arenas as malloc_stats() counts them."""

from __future__ import annotations

from gdbheap.answers import arenas
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, switch
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.report.words.arenas import render

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of ``heap arenas``: whether to add each arena's heaps and free lists, and each thread's cache."""

    detail: bool = switch("--detail", "list each arena's heaps and free lists, and each thread's cache")


def _answer(heap: Heap, options: Options) -> arenas.Arenas:
    return arenas.arenas(heap, options.detail)


def _render(shown: Shown[arenas.Arenas, Options]) -> str:
    return render(shown.answer, shown.style, shown.left_out, shown.options.detail)


COMMAND = Command(
    noun="arenas",
    summary="List malloc's arenas as malloc_stats() counts them",
    text="""malloc_stats() counts blocks in a thread's tcache as used, and blocks in fast bins as free. The column
    %system is the arena's share of all memory that malloc got from the kernel, resident or not.""",
    example="heap arenas --sort=free",
    details="""If the program does not use the C library's malloc, the tables describe the allocator that the program
    uses. For an allocator without arenas, each row is a block size.

    For jemalloc, each row is an arena. Active extents contain blocks in use. The row shows the bytes of these blocks,
    and separately the bytes of blocks in thread caches. Dirty extents are free and have not been returned to the
    kernel. Muzzy extents have been returned, but the kernel has not taken their pages yet. Retained extents are address
    space without memory.

    For mimalloc, each row is one thread's heap, numbered by address. Active pages contain blocks in use, dirty pages
    contain none. The last row counts the pages that belong to no thread. Pass a row's index to
    `heap chunks --arena=INDEX` to list only the blocks of that row.

    tcmalloc has no arenas, because all threads share its spans. A table shows where its free blocks are: in the span
    lists (central), in transfer caches and in each thread's cache.

    For musl's malloc, each row is a slot size. The row shows the number of groups, of used slots and of free slots, and
    the requested bytes. The malloc of musl before 1.2.1 has no groups, so its table has no rows.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="arenas",
    listed="arenas",
    top=20,
    sorts={
        "system": lambda arena: arena.system,
        "in_use": lambda arena: arena.in_use,
        "free": lambda arena: arena.free,
        "fast": lambda arena: arena.fast,
        "tcache": lambda arena: arena.tcache,
        "top": lambda arena: arena.top,
        "used_count": lambda arena: arena.used_count,
        "free_count": lambda arena: arena.free_count,
        "index": lambda arena: None if arena.index is None else -arena.index,
    },
)
