"""``heap check``: find places where an allocator's own data is damaged."""

from __future__ import annotations

from gdbheap.answers import check
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common
from gdbheap.heap import Heap
from gdbheap.report.words.check import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Common) -> check.Check:
    return check.check(heap)


def _render(shown: Shown[check.Check, Common]) -> str:
    return render(shown.answer, shown.style, shown.damage[: shown.options.top], len(shown.damage))


COMMAND = Command(
    noun="check",
    summary="Check the heap for damage",
    text="""Each row describes a damaged place: what gdbheap expected there, and what it found. A place that a thread
    inside malloc was changing does not count as damaged. The exit status is 1 if there is damage.""",
    example="heap check",
    details="""gdbheap walks every region of every allocator, and checks these parts:

    - glibc: every size, PREV_INUSE and prev_size, the top chunk, the arenas' own sums, and the arena and mmapped flags;
      the links of all bins, fast bins and thread caches, with safe-linking.
    - pymalloc: every pool's header and list of free blocks.
    - mimalloc, CPython's own or a library: every segment's table of slices (in 3.x, the map of pages); every page's
      three lists, compared with its count of used blocks.
    - jemalloc: every extent in its tree; every slab's bitmap, compared with its count of free regions.
    - tcmalloc: every span in its map of pages; the span's free blocks, compared with its count of used blocks.

    If glibc ended the program by abort(), the first line is glibc's message. The next line names the block that caused
    the abort. It is the block before the damage, or the block that was freed twice. If a freed pointer points into a
    block, it is that block. The path to the block follows, and then the functions that called malloc or free.

    When a process is stopped, a thread inside malloc may have changed only half of a list. The answer calls this
    place "caught inside malloc".""",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    lists_damage=True,
    listed="places",
)
