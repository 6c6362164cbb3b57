"""``heap info``: show what gdbheap knows about the process, with sources."""

from __future__ import annotations

from gdbheap.answers import info
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common
from gdbheap.heap import Heap
from gdbheap.report.words.info import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Common) -> info.Info:
    return info.info(heap)


def _render(shown: Shown[info.Info, Common]) -> str:
    return render(shown.answer, shown.style, shown.whole)


COMMAND = Command(
    noun="info",
    summary="Show what gdbheap knows about the process, with sources",
    text="""Each row shows a fact, such as a version, an address or a layout, and the source of the fact. `confirmed by`
    names a second source, or the bytes in memory, that confirm the fact.""",
    example="heap info",
    details="""CPython 3.13 and later publish the offsets of their objects' fields (_Py_DebugOffsets). Each published
    offset that differs from gdbheap's own table for that release of CPython has a row. If glibc ended the program
    (abort), glibc's message is the first row.""",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="facts",
    sorts={"order": lambda fact: 0, "fact": lambda fact: fact.fact, "source": lambda fact: fact.source},
)
