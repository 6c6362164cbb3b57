"""``gdbheap processes``: show how much memory several processes have, and how much of it they share."""

from __future__ import annotations

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import PROCESSES
from gdbheap.commands.surface.options import Several, switch
from gdbheap.dataclass import dataclass
from gdbheap.errors import NO_MATCH, NoTarget, UsageError
from gdbheap.processes.family import ProcessFamily, family
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
    """The options of ``gdbheap processes``. ``quick``: show only the kernel's figures, without reading heaps or
    comparing pages.
    """

    quick: bool = switch("--quick", "show only the kernel's figures: do not examine heaps or compare pages")


def _answer(programs: Programs, options: Options) -> ProcessFamily:
    if not programs.are_named:
        raise UsageError("gdbheap processes: which processes? Give PID…, --children, --name=REGEX or --cgroup=PATH")
    named = programs.meant()
    if not named:
        raise NoTarget(NO_MATCH)
    return family(named, options.max_stop or None, options.quick, verdict_of=plain_verdict)


def _render(shown: Shown[ProcessFamily, Options]) -> str:
    return render(shown.answer, shown.whole, shown.left_out, shown.options.quick, shown.style)


COMMAND = Command(
    noun="processes",
    summary="Show the memory of several processes: private, shared, shareable",
    text="""PSS divides each shared page among the processes that map it; USS is the memory that only one process maps.
    'gdbheap PID PID' and 'gdbheap PID --children' run this command, too.""",
    example="gdbheap processes --children",
    details="""The first lines show the memory of all processes together, and the verdict and the largest holder of each
    process. Each row shows RSS, PSS, USS, the heap's used and free bytes, and the largest finding. The column
    "reclaimable" shows the bytes that malloc_trim(0) would return.

    All processes are stopped while gdbheap reads the kernel's figures, so PSS adds up. Each process is then stopped
    separately. gdbheap compares a process with its parent or a sibling if the two come from one exec. The answer shows
    which pages are no longer shared since the fork, and what wrote to them (docs/processes.md). The answer shows how
    much memory a call of gc.freeze() before the fork would save. The answer also counts equal pages of strings, bytes
    and numbers that several workers have, but not their parent. Loading these values before the fork would
    save the pages. A note marks each process that has ended or cannot be read.""",
    needs=PROCESSES,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="processes",
    sorts=SORTS,
)
