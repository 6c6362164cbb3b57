"""``heap owners``: list the variables and modules that hold the memory."""

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

# Memory that the list leaves out gets a line from this share of RSS on.
MIN_PERCENT_OUTSIDE = 10


@dataclass
class Options(Pictured):
    """The options of heap owners."""

    minimum: int | None = valued(
        "--min", "SIZE", "skip smaller blocks or arrays [default with --by=block: 1M]", None, parse_size
    )
    by: str = valued(
        "--by",
        "GROUP",
        "group by holder, block, array, type, global or thread [default: holder]",
        owners.HOLDER,
        one_of(owners.GROUPS),
    )


def _answer(heap: Heap, options: Options) -> owners.Owners:
    if options.draws:
        # A path may contain keys of dicts, and files must have no contents.
        heap.disclosure.contents = False
    found = owners.owners(heap, options.minimum, options.top, options.by)
    if options.draws:
        from gdbheap.report.formats.trees import owners_tree

        draw(options, owners_tree(found), "Who holds what is in use")
    return replace(found, **_outside(heap)) if options.by == owners.HOLDER else found


def _outside(heap: Heap) -> dict[str, Any]:
    """Return the bytes that the list leaves out because no allocator handed them out, if they are many."""
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
    summary="List the variables and modules that hold the memory",
    text="""A row is one holder: a package, a variable with what it reaches, a running frame, a library's data or a
    thread. A block that two holders reach counts for the nearer one.""",
    example="heap owners --top=10",
    details="""Each block in use is in one row. A package's row has its modules, classes and functions, and what only
    these reach. A variable that holds much has a row of its own, named by its path. More rows are running frames, data
    of libraries, the interpreter, tracemalloc's tables, and unreachable blocks. A library's static variable that holds
    much has a row of its own, if a symbol names it. A holder with less than 2 % of the memory in use counts for its
    package. Small packages share one row. A file that was loaded as several modules is one row. The share of RSS counts
    resident bytes. Resident bytes have a column if a row has fewer of them than bytes in all.

    Memory that objects mapped counts for its holder: mmap.mmap, numpy.memmap, SharedMemory, mapped files of Arrow and
    torch. Without its object, a shared mapping is unmapped. Its memory is freed only if no other process has the pages.

    A program without Python has a row for each holder from which the shortest chains start. A global has its symbol, or
    else its section, and the type of most of its bytes. Other rows are thread variables, mappings, PostgreSQL's memory
    contexts of one name, and the objects in a Java heap. `--by=type` groups all blocks by kind. `--by=global` and
    `--by=thread` group the blocks of globals, and those of threads.

    A row says "at least" if some references could not be read: `--max-stop` was over, or a core is truncated. Its bytes
    are proven: the objects count no more references than gdbheap found. Bytes without a proven holder are one line,
    "not examined", with the commands that examine them.

    `--by=block` lists each large block with its size, its Python object and the path from a root. The path is a Python
    expression if there is one, else words. In a program without Python, the path names the offsets of the pointers.
    Shares of RSS leave out the pages of large blocks that are not resident.

    `--by=array` lists DataFrames, Series and Indexes (pandas, polars), Arrow tables and arrays, numpy arrays and torch
    tensors, with their columns. Bytes are those of memory_usage(), estimated_size() and nbytes; a tensor has those of
    its storage. Memory of Arrow's own allocators counts, too. A view has no row if an earlier row shows its memory. A
    value that cannot be proven is left out, and a warning counts it. A row's retained bytes would be freed with the
    object: a slice may retain more than it shows. The total counts each byte once.

    `--format`, `--folded`, `--svg`, `--speedscope` and `--pprof` draw the holders, with what they hold above them.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="rows",
    writes=True,
    top=20,
)
