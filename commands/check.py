"""``heap check``: is anything damaged?"""

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
    question="Is anything damaged?",
    text="""Walks every region of every allocator and says where something is not as the allocator leaves it: what was
    expected there and what was found. In glibc's heaps it checks every size, PREV_INUSE and prev_size, the top chunk,
    the arenas' own sums, the links of all bins both ways and between the sizes of large ones, fast bins and thread
    caches with safe-linking, the arena and mmapped flags; in pymalloc every pool's header and list of free blocks; in
    mimalloc, CPython's own or a library, every segment's table of slices (of 3.x the map of pages), and every page's
    three lists against its count of used blocks; in jemalloc every extent that its tree leads to, and every slab's
    bitmap against its count of free regions; in tcmalloc every span that its map of pages leads to, and every one's
    free blocks against its count of the others.

    Of a program that glibc ended by abort(), the first line is what glibc said; then come the block that is to blame
    (the one before the damage, the one that was freed twice, or the one that a pointer leads into), how it is reached,
    and the calls that led into malloc or free.

    A process may be stopped while a thread is inside malloc and has changed half of a list: such places are named
    "caught inside malloc" and do not count as damage. The exit status is 1 if there is damage.""",
    example="heap check",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    lists_damage=True,
    listed="places",
)
