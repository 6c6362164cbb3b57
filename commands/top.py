"""``gdbheap top``: the memory of running processes, live."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import PROCESSES
from gdbheap.commands.surface.options import Several, some_time, valued
from gdbheap.commands.surface.screen import opened_screen
from gdbheap.commands.surface.session import listed
from gdbheap.report.text.style import style_for, terminal_text
from gdbheap.report.words.top import HELP, render
from gdbheap.sampling.current_totals import Standings, Table
from gdbheap.sampling.sampler import Sampler
from gdbheap.targets.chosen_processes import Programs
from gdbheap.text import printable_record

__all__ = ["COMMAND"]

EVERY = 2.0
SORTS = {
    "rss": lambda row: row.rss,
    "growth": lambda row: row.growth,
    "swap": lambda row: row.swap,
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
    """The options of gdbheap top. ``is_shown``: the last table was printed."""

    is_shown = False

    every: float = valued("--every", "TIME", "between two tables (the default is 2s)", EVERY, some_time)
    count: int | None = valued(
        "--count", "N", "end after so many tables (the default is never, with --json after one)", None, _count
    )


def _answer(programs: Programs, options: Options) -> Table:
    """The last table; those before it were shown."""
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
            # The screen takes no escapes: its first line is bold by itself.
            lambda table: screen.show(_text(table, options, on_screen=True)),
            lambda: screen.wait(options.every),
        )


def _last(
    standings: Standings, options: Options, show: Callable[[Table], None], wait: Callable[[], bool | None]
) -> Table:
    """Show table after table until there are enough, or ``wait`` says that no more are wanted; the last one."""
    left = options.count or (1 if options.json else 0)
    table = standings.take()
    with suppress(KeyboardInterrupt, BrokenPipeError):
        while left != 1 and not standings.sampler.is_over:
            show(table)
            if wait():
                break
            table, options.is_shown, left = standings.take(), False, left - 1
    return table


def _text(table: Table, options: Options, on_screen: bool = False) -> str:
    rows = listed(table.programs, SORTS, options)
    style = style_for(sys.stdout, options.exact, None)
    if on_screen:
        style = style.of_width(style.width, bold=False)
    return render(printable_record(replace(table, programs=rows)), len(table.programs) - len(rows), style)


def _print(table: Table, options: Options) -> None:
    sys.stdout.write(terminal_text(f"{_text(table, options)}\n\n", sys.stdout.encoding))
    sys.stdout.flush()
    options.is_shown = True


def _render(shown: Shown[Table, Options]) -> str:
    """The last table, unless it was printed already."""
    return "" if shown.options.is_shown else render(shown.answer, shown.left_out, shown.style)


COMMAND = Command(
    noun="top",
    question="Which processes grow? Live, until q or Ctrl-C; h shows help",
    text="""A row for each process, refreshed: RSS and how much it has grown since it was first looked at, swap, what
    malloc has from the kernel (malloc), what of it is in use (malloc used) and what is idle, Python's arenas and what
    of them is in use (python used). The key h, or ?, shows what the columns mean; "…" stands for what was not read
    yet. Without a process these are the 100 largest of your own. Nothing is stopped; where a process has not been
    looked into yet, or may not be, only what the kernel says is known. Where standard output is no terminal, tables
    are printed one after the other. Where processes cannot be read, the status is 1; --count says after how many
    tables the last is printed.""",
    example="gdbheap top --sort=growth",
    needs=PROCESSES,
    options=Options,
    answer=_answer,
    render=_render,
    rows="programs",
    listed="processes",
    sorts=SORTS,
    top=30,
)
