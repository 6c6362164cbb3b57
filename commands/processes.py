"""``gdbheap processes``: several processes in one answer, and what they share."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import PROCESSES
from gdbheap.commands.surface.options import Several, switch
from gdbheap.errors import NoTarget, UsageError
from gdbheap.processes.family import Family, family
from gdbheap.report.words.processes import render
from gdbheap.report.words.verdict import plain_verdict
from gdbheap.targets.chosen_processes import Programs

__all__ = ["COMMAND"]

SORTS = {
    "rss": lambda row: row.rss,
    "pss": lambda row: row.pss,
    "uss": lambda row: row.uss,
    "swap": lambda row: row.swap,
    "in-use": lambda row: row.heap and row.heap.in_use,
    "free": lambda row: row.heap and row.heap.free,
    "program": lambda row: row.program,
}


@dataclass
class Options(Several):
    """The options of gdbheap processes."""

    quick: bool = switch("--quick", "only what the kernel counts: no heap is looked into and no pages are compared")


def _answer(programs: Programs, options: Options) -> Family:
    if not programs.are_named:
        raise UsageError("gdbheap processes: which ones? PID…, --children, --name=REGEX or --cgroup=PATH")
    named = programs.meant()
    if not named:
        raise NoTarget("no process that runs is meant by these words: 'heap ps' lists the programs")
    return family(named, options.max_stop or None, options.quick, verdict_of=plain_verdict)


def _render(shown: Shown[Family, Options]) -> str:
    return render(shown.answer, shown.whole, shown.left_out, shown.options.quick, shown.style)


COMMAND = Command(
    noun="processes",
    question="What do several processes have, what do they share, and what could they?",
    text="""First what they have together, and the verdict of each with its largest holder, as on its first page. Then a
    row for each process: RSS, its share of what is resident (PSS), what it has alone (USS), and of its
    heap what is in use, what is free, what of that malloc_trim(0) would give back, and the largest finding. 'gdbheap
    PID PID', or 'gdbheap PID --children', are the same. The kernel's figures are read while all of them stand still:
    the sum of PSS is what they have together. Then each is stopped for itself and its private pages are compared with
    those of its parent, or of a sibling, if both come from one exec: which pages are no longer shared since the fork,
    and by what they were written (docs/processes.md). What gc.freeze() before the fork would save is said with a
    number, and so are pages of strings, bytes and numbers that are equal in several workers and that none of their
    parents has: those preloading would save. One that ends meanwhile or cannot be read has a note.""",
    example="gdbheap processes --children",
    needs=PROCESSES,
    options=Options,
    answer=_answer,
    render=_render,
    rows="processes",
    listed="processes",
    sorts=SORTS,
)
