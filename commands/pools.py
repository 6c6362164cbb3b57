"""``heap pools``: list pymalloc's size classes as sys._debugmallocstats() does."""

from __future__ import annotations

from gdbheap.answers import pools
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, switch
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.report.words.pools import render

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of ``heap pools``. ``detail``: add requested bytes, the fill of arenas, and the emptiest arenas."""

    detail: bool = switch("--detail", "show requested bytes, the fill of arenas, and the emptiest arenas")


def _answer(heap: Heap, options: Options) -> pools.Pools:
    return pools.pools(heap, options.detail)


def _render(shown: Shown[pools.Pools, Options]) -> str:
    return render(shown.answer, shown.whole, shown.style, shown.options.detail)


COMMAND = Command(
    noun="pools",
    summary="List pymalloc's size classes as _debugmallocstats() does (Python)",
    text="""Each row describes a size class: its pools, its blocks in use, and the free blocks in its pools. Pools
    without any block in use have a row of their own.""",
    example="heap pools --sort=free",
    details="""pymalloc can use an empty pool for any size class. The kernel gets an empty pool back only when its whole
    arena is free.

    `--detail` adds a second row to each class. The second row is about the objects that record their own size. The row
    shows the bytes that were requested for the objects, the bytes that the objects got, and the difference. The row
    also shows how many arenas have blocks of the class, and how many have no other blocks. Two tables follow: how full
    the arenas are, and the five arenas with the fewest used bytes. An arena is returned only when its last block is
    freed.

    The figures are sums over all interpreters that have their own pools (CPython 3.12 and later). If pymalloc is not in
    use (PYTHONMALLOC=malloc), there are no rows, and the answer says so.

    Free-threaded builds and PYTHONMALLOC=mimalloc use CPython's own mimalloc. Each row then describes a block size. The
    row's pools are mimalloc's pages, and its free blocks are the blocks that still fit into these pages. A second table
    shows the purpose of the pages, and which pages no longer belong to a thread.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="size classes",
    top=20,
    sorts={
        "pools": lambda row: row.pools,
        "size": lambda row: -row.size,
        "used": lambda row: row.size * row.used_count,
        "free": lambda row: row.size * row.free_count,
    },
)
