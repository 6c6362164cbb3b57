"""The text of ``gdbheap ps``: the largest program, then a row for each program."""

from __future__ import annotations

import os

from gdbheap.errors import one_line
from gdbheap.report.text.numbers import UNKNOWN, counted, share_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gdbheap.processes.accounts import ProgramRow, ProgramTable
    from gdbheap.processes.programs import ProcessSums, Summed

__all__ = ["render"]

NAMES = ("private", "shared", "RAM", "swapped")
OF_HEAP = ("in use", "free", "reclaimable")
NAME_WIDTH = 60
SHOWN_PIDS = 3


def render(
    answer: ProgramTable | Summed,
    left_out: int,
    with_heap: bool,
    style: Style,
    whole: ProgramTable | Summed | None = None,
) -> str:
    """Return the text of the answer: which program uses the most RAM, a row for each program, and the total.

    ``whole``: the answer with all rows, if ``answer`` has fewer.
    """
    columns = [
        *map(Column, NAMES),
        *(map(Column, OF_HEAP) if with_heap else ()),
        Column("pids"),
        Column("program", True),
    ]
    total = answer.total
    sums = [style.size(size) for size in (total.private, total.shared, total.ram, total.swapped)]
    blank = [""] * (len(OF_HEAP) if with_heap else 0)
    rows = [_row(row, with_heap, style) for row in answer.rows]
    notes = [f"{counted(left_out, 'more program')} (--top=all lists all)"] * bool(left_out)
    refused = counted(answer.refused, "process cannot be read and is", "processes cannot be read and are")
    notes += [f"{refused} left out: {_remedy(os.geteuid())}."] * bool(answer.refused)
    notes += [f"Left out: {reason}" for reason in answer.left_out]
    listed = table(columns, rows, style, [*sums, *blank, "", "total"]) if rows else ""
    return join(style.filled(_largest(whole or answer, style)), listed, "\n".join(notes))


def _largest(answer: ProgramTable | Summed, style: Style) -> str:
    """Return a sentence about the program with the most RAM.

    The sentence begins with gdbheap's own words, so that no name begins a line.
    """
    if not answer.rows:
        return "No program was found."
    rows: Sequence[ProgramRow | ProcessSums] = answer.rows
    first = max(rows, key=lambda row: row.ram)
    share = f" ({share_text(first.ram, answer.total.ram)} % of all)" if len(rows) > 1 else ""
    name, processes = one_line(_name(first), NAME_WIDTH), counted(first.count, "process", "processes")
    return f"The largest program is {name}: {style.bytes(first.ram)} of RAM{share} in {processes}."


def _remedy(user: int) -> str:
    if user:
        return "run gdbheap as root (sudo) to read all processes"
    return "root reads all processes only with CAP_SYS_PTRACE, which a container may lack"


def _row(row: ProgramRow | ProcessSums, with_heap: bool, style: Style) -> list[str]:
    sizes = [style.size(size) for size in (row.private, row.shared, row.ram, row.swapped)]
    heap: list[str] = []
    if with_heap:
        known = row.heap is not None and row.heap.looked
        assert row.heap is not None
        heap = [
            style.size(size) if known else UNKNOWN for size in (row.heap.in_use, row.heap.free, row.heap.reclaimable)
        ]
    many = f" ({row.count})" if row.count > 1 else ""
    return [*sizes, *heap, _pids(row.pids), one_line(_name(row), NAME_WIDTH) + many]


def _name(row: ProgramRow | ProcessSums) -> str:
    """Return a program's name. For a script, return the script's name alone; for ``python -m``, add the interpreter."""
    if not row.script:
        return row.name
    return f"{row.name} {row.script}" if row.script.startswith("-") else row.script


def _pids(pids: list[int]) -> str:
    more = ", …" if len(pids) > SHOWN_PIDS else ""
    return ", ".join(map(str, pids[:SHOWN_PIDS])) + more
