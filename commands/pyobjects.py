"""``heap pyobjects``: which Python types hold the memory?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from gdbheap.answers import buffers, instances, pyobjects
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, switch, valued
from gdbheap.errors import UsageError
from gdbheap.heap import MAX_UNIDENTIFIED, Heap
from gdbheap.report.buffers import render as render_buffers
from gdbheap.report.instances import render as render_list
from gdbheap.report.pyobjects import render

__all__ = ["COMMAND"]

TYPE_ORDERS = ("together", "bytes", "buffers", "count", "type")
# Unidentified blocks listed below the table at most.
MAX_UNIDENTIFIED_SHOWN = 5

Answer = Union[pyobjects.PyObjects, instances.Instances, buffers.Buffers]
# The orders of a table of types and the same of a table of buffers, where it is another.
OF_BUFFERS = {"together": "bytes", "buffers": "bytes"}


@dataclass
class Options(Common):
    """The options of heap pyobjects."""

    type: str | None = valued(
        "--type", "GLOB",
        "only types whose whole name matches, with *, ? and [...]; the totals are theirs then",
        None, str,
    )  # fmt: skip
    listing: bool = switch("--list", "a row an object, not a row a type")
    buffers: bool = switch("--buffers", "a row for each kind of buffer of each type: a dict's keys, an ndarray's data")


def _answer(heap: Heap, options: Options) -> Answer:
    if options.listing and options.buffers:
        raise UsageError("heap pyobjects: --list and --buffers are two tables; ask for one")
    if options.listing:
        _check_order(options.sort, "--list", tuple(instances.ORDERS))
        return instances.instances(heap, options.type, options.sort, options.top)
    if options.buffers:
        _check_order(options.sort, "--buffers", ("bytes", "count", "type", "role", *OF_BUFFERS))
        return buffers.buffers(heap, options.type, OF_BUFFERS.get(options.sort, options.sort), options.top)
    _check_order(options.sort, "a table of types", TYPE_ORDERS)
    most = (options.top or MAX_UNIDENTIFIED) if options.json else MAX_UNIDENTIFIED_SHOWN
    return pyobjects.pyobjects(heap, options.type, most)


def _check_order(order: str, what: str, orders: tuple[str, ...]) -> None:
    if order not in orders:
        raise UsageError(f"heap pyobjects: {what} cannot be sorted by {order}, but by {', '.join(orders)}")


def _render(shown: Shown[Answer, Options]) -> str:
    if isinstance(shown.answer, instances.Instances):
        return render_list(shown.answer, shown.style)
    if isinstance(shown.answer, buffers.Buffers):
        return render_buffers(shown.answer, shown.style)
    return render(shown.answer, shown.style, shown.left_out, shown.options.type is not None)


COMMAND = Command(
    noun="pyobjects",
    question="Which Python types hold the memory?",
    text="""A row for each type: how many objects, the bytes of their own blocks with all headers, and the buffers that
    they own (a dict's keys, a list's items, a set's table). Blocks to which no known field points belong to the
    object, the library or the thread that points to them (in JSON: reached, roots). The order is by objects and
    buffers together unless --sort says otherwise. The totals are those of all types, also when --top cuts the list.
    Below the table are the largest unidentified blocks in use, with what their bytes look like: zeros, text, pointers,
    data, or a C++ object of a class (in JSON: unknown, a list of {address, size, looks}, at most 10,000 or as many as
    --top says).

    Where malloc is an allocator that is not walked (jemalloc, tcmalloc, mimalloc as a library), Python's objects in
    its memory are those that references reach, with the sizes in the objects' own fields; in JSON elsewhere {count,
    bytes}, a part of used.

    With --buffers there is a row for each kind of buffer: how many, their bytes, what they are to their owner, and its
    type. The rows add up to the column buffers. In JSON that is buffers, a list of {type, role, count, bytes,
    reached}, with count, bytes and reached over all that match; the role structure, where reached is true, is what
    pointers reach.

    With --list there is a row for each object: its address, its own block, the blocks that its fields own, its type,
    and, for the first 10,000, a short text read from memory. A block that several objects share counts for each of
    them. In JSON that is objects, a list of {address, type, size, buffers, text}, with count, bytes and buffers over
    all that match.""",
    example="heap pyobjects --top=20 --sort=bytes",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="types",
    listed="types, objects or kinds of buffers",
    sorts={
        "together": lambda row: row.bytes + row.buffers,
        "bytes": lambda row: row.bytes,
        "buffers": lambda row: row.buffers,
        "count": lambda row: row.count,
        "type": lambda row: row.type,
        "address": lambda row: 0,
        "role": lambda row: 0,
    },
    top=20,
)
