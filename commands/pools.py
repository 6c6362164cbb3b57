"""``heap pools``: what does pymalloc hold in each size class, as sys._debugmallocstats() counts?"""

from __future__ import annotations

from gdbheap.answers import pools
from gdbheap.commands.declaration import Command, Options, Shown
from gdbheap.heap import Heap
from gdbheap.report.pools import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Options) -> pools.Pools:
    return pools.pools(heap)


def _render(shown: Shown[pools.Pools]) -> str:
    return render(shown.answer, shown.whole, shown.style)


COMMAND = Command(
    noun="pools",
    question="What does pymalloc hold in each size class, as sys._debugmallocstats() counts?",
    text="""A row a size class: its pools, the blocks in use and the blocks that are free in them. Pools that hold no
    block are a row of their own: any size class may take them, and so may the kernel once a whole arena is free.""",
    example="heap pools --sort=free",
    answer=_answer,
    render=_render,
    rows="classes",
    listed="size classes",
    sorts={
        "pools": lambda row: row.pools,
        "size": lambda row: -row.size,
        "used": lambda row: row.size * row.used,
        "free": lambda row: row.size * row.free,
    },
)
