"""``gdbheap ps``: show the memory of each program on this machine."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import NOTHING
from gdbheap.commands.surface.options import Common, regular_expression, switch, valued
from gdbheap.dataclass import dataclass
from gdbheap.processes import accounts
from gdbheap.report.words.ps import render

if TYPE_CHECKING:
    from gdbheap.processes.accounts import ProgramTable

__all__ = ["COMMAND"]

SORTS = {
    "ram": lambda row: row.ram,
    "private": lambda row: row.private,
    "shared": lambda row: row.shared,
    "swapped": lambda row: row.swapped,
    "count": lambda row: row.count,
    "program": lambda row: row.name,
}


@dataclass
class Options(Common):
    """The options of ``gdbheap ps``: a pattern for the programs to show, and whether to read heaps, which stops each
    process.
    """

    filter: re.Pattern[str] | None = valued(
        "--filter", "REGEX", "show only programs whose name or script matches REGEX", None, regular_expression
    )
    heap: bool = switch("--heap", "show each heap's used, free and reclaimable bytes (stops each process)")


def _answer(_nothing: None, options: Options) -> ProgramTable:
    table = accounts.by_program(accounts.read(), options.filter)
    if not options.heap:
        return table
    # Imported on use: most of the run time of ps is its start-up.
    from gdbheap.processes.heaps import with_heaps

    missed: list[str] = []
    programs = with_heaps(table.rows, options.max_stop or None, missed)
    return replace(table, rows=programs, left_out=missed)


def _render(shown: Shown[ProgramTable, Options]) -> str:
    return render(shown.answer, shown.left_out, shown.options.heap, shown.style, shown.whole)


COMMAND = Command(
    noun="ps",
    summary="Show the memory of each program, all its processes together",
    text="""The column RAM is the proportional share (PSS): each page is divided by the number of processes that map it,
    so the column adds up. Private pages belong to one process; the column "shared" is the program's share of all
    other pages.""",
    example="gdbheap ps --filter=python",
    details="""The figures are the same as those of the tool ps_mem. Like ps_mem, gdbheap adds half a KiB to each figure
    that the kernel rounds down to whole KiB. A Python program is named after its script. No process is stopped unless
    `--heap` is given. Only root sees the processes of other users; the last line says how many processes are left out.
    The exit status is 1 if gdbheap may read a heap but could not examine it.""",
    needs=NOTHING,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="programs",
    sorts=SORTS,
)
