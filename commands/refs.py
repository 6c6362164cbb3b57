"""``heap refs``: who points to an object?"""

from __future__ import annotations

from gdbheap.answers import refs
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Addressed
from gdbheap.heap import Heap
from gdbheap.report.words.why import render_refs

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Addressed) -> refs.Refs:
    return refs.refs(heap, options.address, options.top)


def _render(shown: Shown[refs.Refs, Addressed]) -> str:
    return render_refs(shown.answer, shown.style)


COMMAND = Command(
    noun="refs",
    question="Who points to this object?",
    text="""A row for each object, running function or piece of memory that refers to the object whose block holds
    the address, and its name for the reference: an attribute, a key, an item, a local variable. A buffer (a dict's
    keys, a list's items) counts as the object that owns it. References by the layout of a type are certain; a word
    in a C structure that is the address of the object may be left over.""",
    example="heap refs 0x7f31c0de1230",
    needs=TARGET,
    options=Addressed,
    answer=_answer,
    render=_render,
    listed="referrers",
    top=20,
)
