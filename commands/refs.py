"""``heap refs``: list what points to an object."""

from __future__ import annotations

from gdbheap.answers import refs
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Addressed
from gdbheap.heap import Heap
from gdbheap.report.words.refs import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Addressed) -> refs.Refs:
    return refs.refs(heap, options.address, options.top)


def _render(shown: Shown[refs.Refs, Addressed]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="refs",
    summary="List what points to an object",
    text="""Each row describes an object, a running function or memory that refers to the object at ADDRESS. The row
    also names the reference. A word in a C structure is an uncertain reference, because it may be stale.""",
    example="heap refs 0x7f31c0de1230",
    details="""A reference's name is an attribute, a key, an item or a local variable. A buffer (a dict's keys, a list's
    items) counts as the object that owns it. A reference is certain if the layout of a type proves it.""",
    needs=TARGET,
    options=Addressed,
    answer=_answer,
    render=_render,
    listed="referrers",
    top=20,
)
