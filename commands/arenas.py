"""``heap arenas``: list malloc's arenas as malloc_stats() counts them."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers import arenas
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, switch
from gdbheap.heap import Heap
from gdbheap.report.words.arenas import render

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of heap arenas."""

    detail: bool = switch("--detail", "list each arena's heaps, free lists, and the threads' caches")


def _answer(heap: Heap, options: Options) -> arenas.Arenas:
    return arenas.arenas(heap, options.detail)


def _render(shown: Shown[arenas.Arenas, Options]) -> str:
    return render(shown.answer, shown.style, shown.left_out, shown.options.detail)


COMMAND = Command(
    noun="arenas",
    summary="List malloc's arenas as malloc_stats() counts them",
    text="""malloc_stats() counts blocks in a thread's tcache as in use, and blocks in fast bins as free. %system is
    the share of all memory that malloc has from the kernel, resident or not.""",
    example="heap arenas --sort=free",
    details="""If the C library's malloc is unused, the tables are those of the allocator that serves the program. An
    allocator without arenas has a row for each block size.

    jemalloc has a row for each arena. Active extents have blocks in use; the row counts these blocks, and blocks in
    thread caches. Dirty extents are not returned yet; muzzy extents are returned, but the kernel has not taken them
    yet. Retained extents are only address space, without memory.

    For mimalloc, each row is one thread's heap, numbered by address. Active pages have blocks in use, dirty pages have
    none. The last row has the pages without a thread. `heap chunks --arena` takes the index of a row.

    tcmalloc has no arenas; all threads share its spans. A table says where its free blocks are: in the span lists
    (central), in transfer caches and in each thread's cache.

    musl's malloc has a row for each slot size: its groups, its used and free slots, and the requested bytes. The malloc
    before musl 1.2.1 has no groups and no rows.""",
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
