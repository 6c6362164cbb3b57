"""``gdbheap ps``: the memory of all programs on this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import NOTHING
from gdbheap.commands.surface.options import Common, regular_expression, switch, valued
from gdbheap.processes import accounts
from gdbheap.report.words.ps import render

if TYPE_CHECKING:
    from gdbheap.processes.accounts import Table

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
    """The options of gdbheap ps."""

    filter: re.Pattern[str] | None = valued(
        "--filter", "REGEX", "only programs whose name or script has a match of this in it", None, regular_expression
    )
    heap: bool = switch(
        "--heap", "also how much of each program's heaps is in use, free, and would go: stops each process for it"
    )


def _answer(_nothing: None, options: Options) -> Table:
    table = accounts.by_program(accounts.read(), options.filter)
    if not options.heap:
        return table
    # Imported where it is needed: most of the time that ps takes is its start.
    from gdbheap.processes.heaps import with_heaps

    missed: list[str] = []
    programs = with_heaps(table.programs, options.max_stop or None, missed)
    return replace(table, programs=programs, left_out=missed)


def _render(shown: Shown[Table, Options]) -> str:
    return render(shown.answer, shown.left_out, shown.options.heap, shown.style)


COMMAND = Command(
    noun="ps",
    question="How much memory does each program have, all its processes together?",
    text="""What ps_mem prints, and psm and smem: a row for each program with the number of its processes, a Python
    program by its script. RAM is their proportional share (PSS): each page is divided by the number of processes that
    have it, so that the column adds up to what they have together. Private is what a process has alone, shared its
    part of the rest. Nothing is stopped unless --heap asks for it. The figures are ps_mem's, which adds half a KiB to
    each sum that the kernel cuts to whole KiB. Processes of others are left out unless root asks, and counted below.
    The status is 1 where a heap that can be read could not be looked into.""",
    example="gdbheap ps --filter=python",
    needs=NOTHING,
    options=Options,
    answer=_answer,
    render=_render,
    rows="programs",
    listed="programs",
    sorts=SORTS,
)
