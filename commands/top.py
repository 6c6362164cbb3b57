"""``gdbheap top``: show the memory of running processes, live."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import PROCESSES
from gdbheap.commands.surface.options import Several, some_time, valued
from gdbheap.commands.surface.screen import opened_screen
from gdbheap.commands.surface.session import listed
from gdbheap.dataclass import dataclass
from gdbheap.report.text.style import style_for, terminal_text
from gdbheap.report.words.top import HELP, render
from gdbheap.sampling.current_totals import CurrentTable, Standings
from gdbheap.sampling.sampler import Sampler
from gdbheap.targets.chosen_processes import Programs
from gdbheap.text import printable_record

__all__ = ["COMMAND"]

EVERY = 2.0
SORTS = {
    "rss": lambda row: row.rss,
    "growth": lambda row: row.growth,
    "swap": lambda row: row.swapped,
    "malloc": lambda row: row.system,
    "idle": lambda row: row.idle,
    "program": lambda row: row.program,
}


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) < 1 << 31:
        raise ValueError(f"{text!r} is not a number of tables")
    return int(text)


@dataclass
class Options(Several):
    """The options of ``gdbheap top``: the seconds between two tables, and how many tables to show (None: no limit)."""

    every: float = valued("--every", "TIME", "refresh the table every TIME [default: 2s]", EVERY, some_time)
    count: int | None = valued("--count", "N", "end after N tables [default: never, with --json 1]", None, _count)


def _answer(programs: Programs, options: Options) -> CurrentTable:
    """Show tables until the command ends, and return the last table."""
    if not programs.are_named:
        programs = Programs(owner=os.geteuid())
    sampler = Sampler(programs)
    sampler.check()
    standings = Standings(sampler)
    if options.json:
        return _last(standings, options, lambda table: None, lambda: time.sleep(options.every))
    with opened_screen(HELP) as screen:
        if screen is None:
            return _last(standings, options, lambda table: _print(table, options), lambda: time.sleep(options.every))
        return _last(
            standings,
            options,
            # The screen does not interpret escape sequences. The screen itself makes the first line bold.
            lambda table: screen.show(_text(table, options, on_screen=True)),
            lambda: screen.wait(options.every),
        )


def _last(
    standings: Standings, options: Options, show: Callable[[CurrentTable], None], wait: Callable[[], bool | None]
) -> CurrentTable:
    """Show one table after another, until ``options.count`` tables were shown or ``wait`` returns true. Return the last
    table, even if it was not shown yet.
    """
    left = options.count or (1 if options.json else 0)
    table = standings.take()
    with suppress(KeyboardInterrupt, BrokenPipeError):
        while left != 1 and not standings.sampler.is_over:
            show(table)
            if wait():
                break
            table, options.is_printed, left = standings.take(), False, left - 1
    return table


def _text(table: CurrentTable, options: Options, on_screen: bool = False) -> str:
    rows = listed(table.rows, SORTS, options)
    style = style_for(sys.stdout, options.exact, None)
    if on_screen:
        style = style.of_width(style.width, bold=False)
    return render(printable_record(replace(table, rows=rows)), len(table.rows) - len(rows), style)


def _print(table: CurrentTable, options: Options) -> None:
    sys.stdout.write(terminal_text(f"{_text(table, options)}\n\n", sys.stdout.encoding))
    sys.stdout.flush()
    options.is_printed = True


def _render(shown: Shown[CurrentTable, Options]) -> str:
    return render(shown.answer, shown.left_out, shown.style)


COMMAND = Command(
    noun="top",
    summary="Show which processes grow, live",
    text="""Each row shows RSS and its growth, swap, malloc's memory and Python's arenas. No process is stopped. If no
    process is given, the 100 largest of your own processes are shown. The key q or Ctrl-C ends the command; h explains
    the columns.""",
    example="gdbheap top --sort=growth",
    details="""Growth is measured from the first reading. malloc's columns show its memory from the kernel, the part in
    use, and the idle part. Python's columns show its arenas, and the part in use. The sign "…" means that a value has
    not been read yet. A process that has not been examined yet, or cannot be examined, has only the kernel's figures.
    If standard output is not a terminal, the tables are printed one after the other. The exit status is 1 if some
    processes cannot be read.""",
    needs=PROCESSES,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="processes",
    sorts=SORTS,
    top=30,
)
