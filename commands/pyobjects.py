"""``heap pyobjects``: which Python types hold the memory?"""

from __future__ import annotations

from typing import Union

from gdbheap.answers import instances, pyobjects
from gdbheap.commands.declaration import Command, Option, Options, Shown
from gdbheap.errors import UsageError
from gdbheap.heap import LISTED, Heap
from gdbheap.report.instances import render as render_list
from gdbheap.report.pyobjects import render

__all__ = ["COMMAND"]

# So many blocks of which nothing is known stand below the table.
SHOWN = 5

Answer = Union[pyobjects.PyObjects, instances.Instances]


def _answer(heap: Heap, options: Options) -> Answer:
    if not options.listing:
        if options.sort == "address":
            raise UsageError("heap pyobjects: a type has no address; --sort=address goes with --list")
        most = (options.top or LISTED) if options.json else SHOWN
        return pyobjects.pyobjects(heap, options.type, most)
    if options.sort not in instances.ORDERS:
        raise UsageError(f"heap pyobjects: --list cannot be sorted by {options.sort}, but by {_words()}")
    return instances.instances(heap, options.type, options.sort, options.top)


def _words() -> str:
    return ", ".join(instances.ORDERS)


def _render(shown: Shown[Answer]) -> str:
    if isinstance(shown.answer, instances.Instances):
        return render_list(shown.answer, shown.style)
    return render(shown.answer, shown.style, shown.left_out, shown.options.type is not None)


OPTIONS = (
    Option(
        "--type", "type", "GLOB", "only types whose whole name matches, with *, ? and [...]; the totals are theirs then"
    ),
    Option("--list", "listing", "", "a row an object, not a row a type"),
)

COMMAND = Command(
    noun="pyobjects",
    question="Which Python types hold the memory?",
    text="""A row a type: how many objects, the bytes of their own blocks with all headers, and the buffers that they
    own (a dict's keys, a list's items, a set's table). Blocks that no known field names belong to the object, the
    library or the thread whose pointers lead there (in JSON: reached, roots). The order is by both together unless
    --sort says otherwise. The totals are those of all types, also when --top cuts the list.

    With --list a row an object: its address, its own block, the blocks that its fields own, its type, and a short text
    read from memory, of the first 10,000. A block that several objects share counts for each there. In JSON that is
    objects, a list of {address, type, size, buffers, text}, with count, bytes and buffers over all that match.""",
    example="heap pyobjects --top=20 --sort=bytes",
    answer=_answer,
    render=_render,
    options=OPTIONS,
    rows="types",
    listed="types, or objects,",
    sorts={
        "together": lambda row: row.bytes + row.buffers,
        "bytes": lambda row: row.bytes,
        "buffers": lambda row: row.buffers,
        "count": lambda row: row.count,
        "type": lambda row: row.type,
        "address": lambda row: 0,
    },
    top=20,
)
