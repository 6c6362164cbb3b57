"""``heap pools``: what does pymalloc hold in each size class, as sys._debugmallocstats() counts?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers import pools
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, switch
from gdbheap.heap import Heap
from gdbheap.report.words.pools import render

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of heap pools."""

    detail: bool = switch(
        "--detail", "also list what objects asked for, how full the arenas are, and what is in the emptiest"
    )


def _answer(heap: Heap, options: Options) -> pools.Pools:
    return pools.pools(heap, options.detail)


def _render(shown: Shown[pools.Pools, Options]) -> str:
    return render(shown.answer, shown.whole, shown.style, shown.options.detail)


COMMAND = Command(
    noun="pools",
    question="What does pymalloc hold in each size class, as sys._debugmallocstats() counts? (Python)",
    text="""A row for each size class: its pools, the blocks in use, and the free blocks in them. Pools without any
    block are a row of their own: any size class may take them, and so may the kernel once a whole arena is free.

    With --detail each size class has a second row: the objects in it that tell their own size (an object's fixed part,
    its items and what precedes it), what they asked for, what they got, and how much of that they did not ask for; in
    how many arenas the class has blocks, how many of these have no other blocks, and with how many blocks. Then come
    the numbers of arenas that are filled to 1, 10, 25, 50, 75 and 100 %, and the five arenas with the fewest used
    bytes, with the largest blocks in each: an arena stays until the last of its blocks is freed.

    The figures are sums over all interpreters with pools of their own: subinterpreters of CPython 3.12 and later may
    have them. Where pymalloc is not in use (PYTHONMALLOC=malloc) there are no rows, and the answer says so.

    In free-threaded builds, and with PYTHONMALLOC=mimalloc, the blocks are those of CPython's own mimalloc: a row is a
    block size, its pools are pages, and free blocks are those for which its pages have room. A second table says what
    they are for, which free-threaded builds keep apart, and which pages no longer belong to a thread.""",
    example="heap pools --sort=free",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="classes",
    listed="size classes",
    top=20,
    sorts={
        "pools": lambda row: row.pools,
        "size": lambda row: -row.size,
        "used": lambda row: row.size * row.used,
        "free": lambda row: row.size * row.free,
    },
)
