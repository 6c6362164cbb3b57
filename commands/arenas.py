"""``heap arenas``: what does malloc hold in each arena, by malloc_stats' own definitions?"""

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

    detail: bool = switch("--detail", "also list each arena's heaps, its free lists by kind, and the threads' caches")


def _answer(heap: Heap, options: Options) -> arenas.Arenas:
    return arenas.arenas(heap, options.detail)


def _render(shown: Shown[arenas.Arenas, Options]) -> str:
    return render(shown.answer, shown.style, shown.left_out, shown.options.detail)


COMMAND = Command(
    noun="arenas",
    question="What does malloc hold in each arena, by malloc_stats' own definitions?",
    text="""A row for each arena: what it has from the kernel (system), what malloc_stats() calls in use, and how the
    rest is kept. malloc_stats() counts blocks in a thread's tcache as in use, and blocks in fast bins as free. The
    column %system is the share of all that malloc has from the kernel, resident or not.

    Where the C library's malloc holds nothing and other allocators serve in its place, their tables stand in place of
    its own, and of those without arenas a row is a size of blocks, as of musl's.

    Where jemalloc is in malloc's place or beside it, a table has a row for each of its arenas: extents with blocks in
    them (active), of these blocks in use and in threads' caches, dirty and muzzy extents, which it has not given back
    or the kernel has not taken yet, and what is retained, which is address space alone. Of mimalloc a row is a heap of
    a thread, numbered by their addresses, with the pages that have blocks in use (active) and those that have none
    (dirty); the last are pages that no thread has. The column arena is what heap chunks --arena takes.

    tcmalloc has no arenas either: all threads share its spans. A table says where its free blocks wait: in the lists
    of spans (central), in transfer caches, and in the cache of each thread.

    musl's malloc has no arenas: a row is a size of its slots, with the groups of such slots, those in use and free,
    and the bytes that were asked for of the ones in use; the one before 1.2.1 has no groups either, and no rows.""",
    example="heap arenas --sort=free",
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
        "used_chunks": lambda arena: arena.used_chunks,
        "free_chunks": lambda arena: arena.free_chunks,
        "index": lambda arena: -arena.index,
    },
)
