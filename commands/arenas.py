"""``heap arenas``: what does malloc hold in each arena, by malloc_stats' own definitions?"""

from __future__ import annotations

from gdbheap.answers import arenas
from gdbheap.commands.declaration import Command, Options, Shown
from gdbheap.heap import Heap
from gdbheap.report.arenas import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Options) -> arenas.Arenas:
    return arenas.arenas(heap)


def _render(shown: Shown[arenas.Arenas]) -> str:
    return render(shown.answer, shown.style, shown.left_out)


COMMAND = Command(
    noun="arenas",
    question="What does malloc hold in each arena, by malloc_stats' own definitions?",
    text="""A row an arena: what it has from the kernel (system), what malloc_stats() calls in use, and how the rest is
    kept. malloc_stats() counts blocks that wait in a thread's tcache as in use, blocks in fast bins as free.""",
    example="heap arenas --sort=free",
    answer=_answer,
    render=_render,
    rows="arenas",
    listed="arenas",
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
