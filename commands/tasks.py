"""``heap tasks``: list asyncio tasks and where they wait."""

from __future__ import annotations

from typing import Union

from gdbheap.answers import tasks
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, one_of, switch, valued
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.report.words.tasks import render, render_list

__all__ = ["COMMAND"]

ALL = "all"
Answer = Union[tasks.Tasks, tasks.Listed]


@dataclass
class Options(Common):
    """The options of ``heap tasks``: which kind of task to show, whether to list single tasks, and whether to add
    retained bytes.
    """

    kind: str = valued(
        "--kind",
        "KIND",
        f"show only rows of one kind: {', '.join(tasks.KINDS)} [default: {ALL}]",
        ALL,
        one_of((ALL, *tasks.KINDS)),
    )
    listing: bool = switch("--list", "show one row per task, with its name")
    retained: bool = switch("--retained", "show what would be freed with each row's tasks (reads all references)")


def _answer(heap: Heap, options: Options) -> Answer:
    kinds = tasks.KINDS if options.kind == ALL else (options.kind,)
    if options.listing:
        return tasks.listed(heap, kinds, options.sort, options.top, options.retained)
    return tasks.tasks(heap, kinds, options.retained)


def _render(shown: Shown[Answer, Options]) -> str:
    if isinstance(shown.answer, tasks.Listed):
        return render_list(shown.answer, shown.style, shown.options.retained)
    whole = shown.whole
    assert not isinstance(whole, tasks.Listed)
    return render(shown.answer, shown.style, shown.left_out, shown.options.retained, whole)


COMMAND = Command(
    noun="tasks",
    summary="List asyncio tasks and where they wait (Python)",
    text="""Each row groups the tasks that have the same coroutine, line, chain of awaits and awaited type. Finished
    tasks have a row as long as something keeps them alive.""",
    example="heap tasks --top=10",
    details="""The command covers the tasks of asyncio, in C and in Python. It also covers coroutines and generators
    that no task runs, asynchronous generators, and greenlets. The chain of awaits begins with the outermost coroutine.
    Bytes are the sizes of the tasks' own blocks, and of the coroutines and frames in their chains. An object
    that several tasks wait for counts for the first of these tasks. A chain of more than 50 steps ends with the number
    of steps left out. Pending and running tasks are the tasks that asyncio.all_tasks() returns. A greenlet is shown
    with the frame in which it stopped running. A greenlet without a frame is shown as idle: it runs now, has not begun
    or has ended.

    `--retained` adds a column: the bytes that would be freed with all tasks of a row and the coroutines of their
    chains. The figure is at least as large as the row's own bytes.""",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    listing=tasks.Tasks,
    listed="rows",
    sorts={
        "count": lambda row: row.count,
        "bytes": lambda row: row.bytes,
        "retained": lambda row: row.retained or 0,
    },
    top=20,
)
