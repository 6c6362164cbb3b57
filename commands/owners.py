"""``heap owners``: who holds what is in use?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gdbheap.answers import owners
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Pictured, one_of, valued
from gdbheap.commands.surface.pictures import draw
from gdbheap.findings import Evidence
from gdbheap.first_page.outside import outside_holders, unowned_holders
from gdbheap.heap import Heap
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.graph import render_owners

__all__ = ["COMMAND"]

# What the list leaves out is worth a line from this share of RSS on.
MIN_PERCENT_OUTSIDE = 10


@dataclass
class Options(Pictured):
    """The options of heap owners."""

    minimum: int | None = valued(
        "--min", "SIZE",
        "leave out blocks (or arrays) that are smaller; with --by=block the default is 1M (K, M, G and T are powers of"
        " 1024)", None, parse_size,
    )  # fmt: skip
    by: str = valued(
        "--by", "GROUP",
        "holder, or block: a row for each large block; of a program with Python also array: a row for each DataFrame,"
        " table and array; of one without also type, global or thread; the default is holder", owners.HOLDER,
        one_of(owners.GROUPS),
    )  # fmt: skip


def _answer(heap: Heap, options: Options) -> owners.Owners:
    if options.draws:
        # A path may have keys in it, and what is written holds no contents.
        heap.disclosure.contents = False
    found = owners.owners(heap, options.minimum, options.top, options.by)
    if options.draws:
        from gdbheap.report.formats.trees import owners_tree

        draw(options, owners_tree(found), "Who holds what is in use")
    return replace(found, **_outside(heap)) if options.by == owners.HOLDER else found


def _outside(heap: Heap) -> dict[str, Any]:
    """Return what the list leaves out because no allocator handed it out, if that is much."""
    evidence = Evidence(heap, {})
    rows = unowned_holders(evidence, outside_holders(evidence))
    size = sum(row.bytes for row in rows)
    if 100 * size < MIN_PERCENT_OUTSIDE * (heap.target.rss.bytes or 0) or not rows:
        return {}
    return {"outside": size, "outside_most": rows[0].path}


def _render(shown: Shown[owners.Owners, Options]) -> str:
    return render_owners(shown.answer, shown.style, shown.options.by == owners.ARRAY)


COMMAND = Command(
    noun="owners",
    question="Who holds what is in use, and how is that reached?",
    text="""Each block in use is in one row. In a program with Python the rows are packages (their modules, classes and
    functions, and what only leads from there), variables that have much with all that they lead to, each by its path,
    frames that run, data of libraries (a static variable that has much has a row of its own, where a symbol names it),
    the interpreter itself, the tables of tracemalloc, and what nothing leads to; of two holders that lead to a block
    the one with the shorter chain has it. A file that was loaded as several modules is one row. What has less than a
    fiftieth of what is in use is part of its package, and small packages are one row. count is how many objects, with
    their buffers, and blocks of C code. The share of RSS is that of resident bytes, which have a column where they are
    less than all bytes of a row.

    Memory that objects mapped counts for what holds them: mmap.mmap, numpy.memmap, SharedMemory, and all that keeps
    the address of a mapping beside its size, such as Arrow's and torch's mapped files. Shared mappings are unmapped
    without the object, and freed only where nobody else has the pages.

    In a program without Python a row is one holder, to whose blocks the shortest chains lead from there: a global (by
    its symbol, or its section where the program has no symbols), with the type of what has most of its bytes; what a
    thread's variable or a mapping leads to; the memory contexts of one name in PostgreSQL; the objects in a Java heap.
    --by=global, --by=thread and --by=type have a row for each kind of block: of globals, of threads, of all.

    If some references could not be read, because --max-stop was over or a core is truncated, a row says "at least": so
    much its holder is proven to have. The rest is one line, "not examined", with the commands that would examine it. A
    holder is proven where an object counts no more references than were found.

    --by=block is a row for each large block: its size, the Python object that it is or belongs to, and the path from a
    root to that object: as Python where there is an expression, else in words. Without Python the path leads over the
    offsets of the words that lead from block to block. Shares of RSS leave out what is not resident of large blocks,
    because the program never wrote to them or the kernel swapped them out.

    --by=array is a row for each DataFrame, Series and Index of pandas and polars, pyarrow Table, RecordBatch,
    ChunkedArray and Array, numpy array, and torch tensor, with the columns below it: bytes as memory_usage(),
    estimated_size() and nbytes count them, of a tensor its storage's, wherever they lie, also in memory of Arrow's own
    allocator. What only shows memory of a row before, as a view does, has no row. What cannot be proven is left out; a
    warning counts it. What a row retains would be free without the object: a slice may keep far more than it shows.
    The sum has no byte twice.

    --format, --folded, --svg, --speedscope and --pprof draw the holders, with what they hold above them.""",
    example="heap owners --top=10",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="rows",
    writes=True,
    top=20,
)
