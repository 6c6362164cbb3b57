"""``gdbheap processes``: show what several processes have, and what they share."""

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
    "swap": lambda row: row.swapped,
    "in-use": lambda row: row.heap and row.heap.in_use,
    "free": lambda row: row.heap and row.heap.free,
    "program": lambda row: row.program,
}


@dataclass
class Options(Several):
    """The options of gdbheap processes."""

    quick: bool = switch("--quick", "show the kernel's figures only: examine no heap, compare no pages")


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
    summary="Show what several processes have: private, shared, shareable",
    text="""PSS divides each shared page among its processes; USS is what a process has alone. 'gdbheap PID PID' and
    'gdbheap PID --children' call this command, too.""",
    example="gdbheap processes --children",
    details="""The first lines say what the processes have together, and give the verdict and the largest holder of
    each. A row has RSS, PSS, USS, the heap's used and free bytes, what malloc_trim(0) would return, and the largest
    finding.

    The kernel's figures are read while all processes are stopped, so that PSS adds up. Each process is then stopped by
    itself. Its private pages are compared with its parent's or a sibling's, if both come from one exec. The answer says
    which pages are not shared any more since the fork, and what wrote to them (docs/processes.md). It says what
    gc.freeze() before the fork would save. It also counts equal pages of strings, bytes and numbers of several workers
    that no parent has. Loading them before the fork would save these pages. A process that ends or cannot be read has a
    note.""",
    needs=PROCESSES,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="processes",
    sorts=SORTS,
)
