"""``heap pyobjects``: which Python types hold the memory?"""

from __future__ import annotations

from gdbheap.answers import pyobjects
from gdbheap.commands.declaration import Command, Options, Shown
from gdbheap.heap import Heap
from gdbheap.report.pyobjects import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Options) -> pyobjects.PyObjects:
    return pyobjects.pyobjects(heap)


def _render(shown: Shown[pyobjects.PyObjects]) -> str:
    return render(shown.answer, shown.style, shown.left_out)


COMMAND = Command(
    noun="pyobjects",
    question="Which Python types hold the memory?",
    text="""A row a type: how many objects, the bytes of their own blocks with all headers, and the buffers that they
    own (a dict's keys, a list's items, a set's table). Blocks that no known field names belong to the object, the
    library or the thread whose pointers lead there (in JSON: reached, roots). The order is by both together unless
    --sort says otherwise.
    The totals are those of all types, also when --top cuts the list.""",
    example="heap pyobjects --top=20 --sort=bytes",
    answer=_answer,
    render=_render,
    rows="types",
    listed="types",
    sorts={
        "together": lambda row: row.bytes + row.buffers,
        "bytes": lambda row: row.bytes,
        "buffers": lambda row: row.buffers,
        "count": lambda row: row.count,
        "type": lambda row: row.type,
    },
    top=20,
)
