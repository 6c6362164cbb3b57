"""``heap owners``: list the variables and modules that hold the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gdbheap.answers import owners
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Pictured, one_of, valued
from gdbheap.commands.surface.pictures import draw
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence
from gdbheap.first_page.outside import outside_holders, unowned_holders
from gdbheap.heap import Heap
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.owners import render_owners

__all__ = ["COMMAND"]


@dataclass
class Options(Pictured):
    """The options of ``heap owners``: how to group the memory in use, and the smallest block or array to list."""

    minimum: int | None = valued(
        "--min", "SIZE", "skip blocks or arrays smaller than SIZE [default with --by=block: 1M]", None, parse_size
    )
    by: str = valued(
        "--by",
        "GROUP",
        "group memory by holder, block, array, type, global or thread [default: holder]",
        owners.HOLDER,
        one_of(owners.GROUPS),
    )


def _answer(heap: Heap, options: Options) -> owners.Owners:
    if options.draws:
        # A path may contain keys of dicts, but files must not have contents of the process's memory.
        heap.disclosure.contents = False
    found = owners.owners(heap, options.minimum, options.top, options.by)
    if options.draws:
        from gdbheap.report.formats.trees import owners_tree

        draw(options, owners_tree(found), "Memory in use, by holder")
    return replace(found, **_outside(heap)) if options.by == owners.HOLDER else found


def _outside(heap: Heap) -> dict[str, Any]:
    """Return the fields of the answer about holders of memory outside all allocators. The list of holders lacks them.
    The fields are empty if no such holder has much memory.
    """
    evidence = Evidence(heap, {})
    found = unowned_holders(evidence, outside_holders(evidence))
    rows = [owners.HeldOutside(row.path, row.bytes if row.resident is None else row.resident) for row in found]
    rows.sort(key=lambda row: (-row.resident, row.path))
    return {
        "outside": sum(row.resident for row in rows),
        "outside_most": rows[0].path if rows else "",
        "outside_rows": rows,
    }


def _render(shown: Shown[owners.Owners, Options]) -> str:
    return render_owners(shown.answer, shown.style, shown.options.by == owners.ARRAY)


COMMAND = Command(
    noun="owners",
    summary="List the variables and modules that hold the memory",
    text="""Each row describes one holder: a package, a variable with everything that it reaches, a running frame, the
    data of a library, or a thread. A block that two holders reach counts for the nearer holder.""",
    example="heap owners --top=10",
    details="""Each block in use counts in one row. The row of a package includes its modules, classes and functions,
    and everything that only these reach. A variable that holds much memory has a row of its own, named by its path.
    Further rows show running frames, data of libraries, the interpreter, tracemalloc's tables, and unreachable blocks.
    A library's static variable has a row of its own if it holds much memory and has a symbol. A holder with less than 2
    % of the memory in use counts for its package. Small packages share one row. A file that was loaded as several
    modules has one row. The share of RSS counts only resident bytes. If some bytes of a row are not resident, a column
    shows the resident bytes.

    Memory that an object mapped counts for the holder of the object. mmap.mmap, numpy.memmap, SharedMemory, and mapped
    files of Arrow and torch can map memory. A shared mapping is unmapped when its object is freed. The memory of the
    mapping is freed only if no other process has the pages.

    In a program without Python, a row is a holder from which the shortest chains of pointers start. A global is named
    by its symbol and by the type of most of its bytes. Without symbols, it is named by its section, and neighbouring
    pointers are one global. Further rows show thread variables,
    mappings, the objects in a Java heap, and PostgreSQL's memory contexts, by name. `--by=type` groups all blocks by
    kind. `--by=global` shows only blocks that globals hold; `--by=thread` shows only blocks that threads hold.

    A row says "at least" if some references could not be read: the time of `--max-stop` was over, or a core is
    truncated. The bytes of this row are proven: the objects' reference counts do not exceed the references that
    gdbheap found. One line, "not examined", shows the bytes without a proven holder, and the commands that examine
    them.

    `--by=block` lists each large block with its size, its Python object and the path from a root. The path is a Python
    expression if possible; otherwise it is a text. In a program without Python, the path names the offsets of the
    pointers. Shares of RSS count only the resident pages of large blocks.

    `--by=array` lists DataFrames, Series and Indexes (pandas, polars), Arrow tables and arrays, numpy arrays and torch
    tensors, with their columns. The bytes equal the results of memory_usage(), estimated_size() and nbytes. The bytes
    of a tensor are those of its storage. Memory of Arrow's own allocators counts, too. A view has no row if an earlier
    row includes its memory. A value that cannot be proven is left out, and a warning counts the values that were left
    out. The retained bytes of a row would be freed with the object: a slice may retain more than it contains. The total
    counts each byte once.

    `--format` and the options for its formats draw the holders, and above each holder the memory that it holds.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    listed="rows",
    writes=True,
    top=20,
)
