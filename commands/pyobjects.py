"""``heap pyobjects``: list the types of Python objects that hold the memory."""

from __future__ import annotations

from typing import Union

from gdbheap.answers import buffers, duplicates, fill, groups, instances, lines, pyobjects, tallies
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, one_of, switch, valued
from gdbheap.contents.python.content import MAX_UNIDENTIFIED
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.heap import Heap
from gdbheap.report.words.buffers import render as render_buffers
from gdbheap.report.words.fill import render as render_fill
from gdbheap.report.words.groups import render as render_groups
from gdbheap.report.words.instances import render as render_list
from gdbheap.report.words.lines import render as render_lines
from gdbheap.report.words.pyobjects import render
from gdbheap.report.words.tallies import render as render_tallies
from gdbheap.report.words.values import render as render_values

__all__ = ["COMMAND"]

TYPE_ORDERS = ("together", "bytes", "own", "buffers", "count", "type")
# At most this many blocks with unknown contents are listed below the table.
MAX_UNIDENTIFIED_SHOWN = 5

TYPE, LINE, VALUE, FILL = "type", "line", "value", "fill"
GROUPS = (TYPE, tallies.SIZE, tallies.LENGTH, tallies.MODULE, VALUE, LINE, FILL)

Answer = Union[
    pyobjects.PyObjects, instances.Instances, buffers.Buffers, tallies.Tallies, duplicates.ByValue, lines.Lines,
    groups.Groups, fill.Fills,
]  # fmt: skip
# --sort's keys that have another name in a table of buffers than in a table of types.
OF_BUFFERS = {"together": "bytes", "buffers": "bytes"}


@dataclass
class Options(Common):
    """The options of ``heap pyobjects``: which types to show, and which of the command's tables.

    ``group``: the attribute by whose values objects of one type are grouped, None for other tables.
    """

    type: str | None = valued("--type", "GLOB", "show and add up only types whose full name matches GLOB", None, str)
    listing: bool = switch("--list", "show one row per object")
    by: str = valued(
        "--by", "KEY", f"group by {', '.join(GROUPS[:-1])} or {GROUPS[-1]} [default: {TYPE}]", TYPE, one_of(GROUPS)
    )
    group: str | None = valued("--group", "ATTRIBUTE", "show one row per value of ATTRIBUTE (with --type)", None, str)
    buffers: bool = switch("--buffers", "show one row per kind of buffer of each type")

    def check(self) -> None:
        """Raise UsageError if the options ask for more than one table, or for an order that the table does not have."""
        tables = [self.listing, self.buffers, self.group is not None, self.by != TYPE]
        if sum(tables) > 1:
            raise UsageError("heap pyobjects: --list, --buffers, --group and --by exclude each other: give one of them")
        if self.by == LINE and self.type is not None:
            raise UsageError("heap pyobjects: --by=line counts all blocks, because tracemalloc knows no types")
        what, orders = self._orders()
        if self.sort not in orders:
            raise UsageError(f"heap pyobjects: {what} cannot be sorted by {self.sort}, only by {', '.join(orders)}")

    def _orders(self) -> tuple[str, tuple[str, ...]]:
        """Return the name of the table in messages, and the keys by which it can be sorted."""
        if self.group is not None:
            return "--group", ("together", "bytes", "buffers", "count")
        if self.by != TYPE:
            return f"--by={self.by}", ("together", "bytes", "count")
        if self.listing:
            return "--list", tuple(instances.ORDERS)
        if self.buffers:
            return "--buffers", ("bytes", "count", "type", "role", *OF_BUFFERS)
        return "a table of types", TYPE_ORDERS


def _answer(heap: Heap, options: Options) -> Answer:
    if options.group is not None:
        order = options.sort if options.sort in groups.ORDERS else "count"
        return groups.groups(heap, options.type, options.group, order, options.top)
    if options.by != TYPE:
        return _by(heap, options)
    if options.listing:
        return instances.instances(heap, options.type, options.sort, options.top)
    if options.buffers:
        return buffers.buffers(heap, options.type, OF_BUFFERS.get(options.sort, options.sort), options.top)
    most = (options.top or MAX_UNIDENTIFIED) if options.json else MAX_UNIDENTIFIED_SHOWN
    return pyobjects.pyobjects(heap, options.type, most)


def _by(heap: Heap, options: Options) -> Answer:
    """Return the answer to --by, if it groups objects by something other than their type."""
    by_count = options.sort == "count"
    if options.by == LINE:
        return lines.lines(heap, by_count, options.top)
    if options.by == VALUE:
        return duplicates.by_value(heap, options.type, options.top)
    if options.by == FILL:
        return fill.fills(heap, options.type)
    return tallies.tallies(heap, options.by, options.type, by_count, options.top)


def _render(shown: Shown[Answer, Options]) -> str:
    if isinstance(shown.answer, instances.Instances):
        return render_list(shown.answer, shown.style)
    if isinstance(shown.answer, buffers.Buffers):
        return render_buffers(shown.answer, shown.style)
    if isinstance(shown.answer, tallies.Tallies):
        return render_tallies(shown.answer, shown.style)
    if isinstance(shown.answer, duplicates.ByValue):
        return render_values(shown.answer, shown.style)
    if isinstance(shown.answer, lines.Lines):
        return render_lines(shown.answer, shown.style)
    if isinstance(shown.answer, groups.Groups):
        return render_groups(shown.answer, shown.style)
    if isinstance(shown.answer, fill.Fills):
        return render_fill(shown.answer, shown.style)
    return render(shown.answer, shown.style, shown.left_out, shown.options.type is not None)


COMMAND = Command(
    noun="pyobjects",
    summary="List the types of objects that hold the memory (Python)",
    text="""An object's own bytes are its block with all headers. Buffers are other blocks that the object owns: a
    dict's keys, a list's items, a set's table. The totals count all types.""",
    example="heap pyobjects --top=20 --sort=bytes",
    details="""A block without a known owner counts for the object, library or thread that points to it. Shares of RSS
    count only the resident pages of large blocks. A second table lists the largest unidentified blocks. The
    table says what the bytes of each block look like: zeros, text, pointers, data or a C++ class.

    The column "mapped" shows memory that objects such as mmap.mmap mapped. The column appears only if such an object
    exists. Mapped bytes are in no allocator's block, and do not count as used.

    A program may have a malloc whose blocks gdbheap cannot list. gdbheap then lists only the Python objects that
    references reach. The sizes of the objects come from their own fields.

    The GLOB of `--type` may contain `*`, `?` and `[...]`.

    `--buffers` shows a row for each kind of buffer: their number, their bytes, their role for the owner, and the
    owner's type. The rows add up to the column "buffers". The role "structure" means memory that pointers reach.

    `--list` shows a row for each object: address, own block, buffers and type. The rows of the first 10,000 objects
    also have a short text. A block that several objects share counts for each of these objects.

    `--by=size` groups by the size of an object's own block. `--by=length` groups by len(), for str, bytes, bytearray,
    list, tuple, dict, set and deque. `--by=module` groups by the module of the type. `--by=value` groups equal str,
    bytes, numbers and tuples of these; see `heap duplicates`. `--by=fill` groups list, bytearray, dict and
    set objects by how full their allocated memory is.

    `--by=line` reads tracemalloc's own table, if tracemalloc is on in the program. gdbheap counts blocks and requested
    bytes for each line, as tracemalloc.take_snapshot() does, but calls nothing in the program.

    `--group` shows a row for each value of ATTRIBUTE, and needs `--type`. An example is `heap pyobjects
    --type=app.Session --group=tenant_id`. Objects whose value could not be read are in no group.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listing=pyobjects.PyObjects,
    listed="types, objects or kinds of buffers",
    sorts={
        "together": lambda row: row.bytes + row.mapped,
        "bytes": lambda row: row.bytes,
        "own": lambda row: row.own,
        "buffers": lambda row: row.buffers,
        "count": lambda row: row.count,
        "type": lambda row: row.type,
        "address": lambda row: 0,
        "role": lambda row: 0,
    },
    top=20,
)
