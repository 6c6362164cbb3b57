"""``heap info``: what is known about this target, and where does each fact come from?"""

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
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="info",
    question="What is known about this target, and where does each fact come from?",
    text="""A row for each fact: versions, addresses and layouts, the source, and whether a second source or the
    bytes themselves confirm it. If an interpreter publishes other offsets of its objects' fields than are shipped
    for its release (_Py_DebugOffsets, 3.13 and later), each has a row. The first row is the message with which
    glibc ended the program (abort).""",
    example="heap info",
    needs=TARGET,
    options=Common,
    answer=_answer,
    render=_render,
    rows="facts",
    listed="facts",
    sorts={"order": lambda fact: 0, "fact": lambda fact: fact.fact, "source": lambda fact: fact.source},
)
