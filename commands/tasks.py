"""``heap tasks``: which tasks pile up, and where do they wait?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from gdbheap.answers import tasks
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, one_of, switch, valued
from gdbheap.heap import Heap
from gdbheap.report.words.tasks import render, render_list

__all__ = ["COMMAND"]

ALL = "all"
Answer = Union[tasks.Tasks, tasks.Listed]


@dataclass
class Options(Common):
    """The options of heap tasks."""

    kind: str = valued(
        "--kind", "KIND", f"only {', '.join(tasks.KINDS)}; the default is {ALL}", ALL, one_of((ALL, *tasks.KINDS))
    )
    listing: bool = switch("--list", "a row for each one, with the name of a task, not a row for those that wait alike")
    retained: bool = switch("--retained", "also what would be free without all of a row (reads all references)")


def _answer(heap: Heap, options: Options) -> Answer:
    kinds = tasks.KINDS if options.kind == ALL else (options.kind,)
    if options.listing:
        return tasks.listed(heap, kinds, options.sort == "bytes", options.top)
    return tasks.tasks(heap, kinds, options.retained)


def _render(shown: Shown[Answer, Options]) -> str:
    if isinstance(shown.answer, tasks.Listed):
        return render_list(shown.answer, shown.style)
    return render(shown.answer, shown.style, shown.left_out, shown.options.retained)


COMMAND = Command(
    noun="tasks",
    question="Which tasks pile up, and where do they wait? (Python)",
    text="""asyncio's tasks, C's and Python's own, coroutines and generators that no task runs, asynchronous generators,
    and greenlets: a row for those that wait alike, by the coroutine, the line where it waits, the chain of what it
    awaits, outermost first, and the type of what the last one waits for. bytes are their own blocks and those of the
    coroutines and frames of the chain; what several wait for counts with the first of them. Of a chain of more than 50
    the last step says how many more there are. Tasks that are pending or running are asyncio.all_tasks(); those that
    are finished or cancelled have a row of their own as long as somebody keeps them. Of a greenlet it is the frame in
    which it was left; one that runs, has not begun or has ended is idle. What --retained adds would be free without all
    of a row and the coroutines of their chains, whoever else holds those: as much as bytes, or more.""",
    example="heap tasks --top=10",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="rows",
    sorts={
        "count": lambda row: row.count,
        "bytes": lambda row: row.bytes,
        "retained": lambda row: row.retained or 0,
    },
    top=20,
)
