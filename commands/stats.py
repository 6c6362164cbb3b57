"""``heap stats``: what does the process itself say?

``calls`` makes the call, for the shell and for gdb. What is here is the declaration that both sides share."""

from __future__ import annotations

from gdbheap.answers import stats
from gdbheap.commands.surface.declaration import SECCOMP, Command, Options, Shown
from gdbheap.errors import UsageError
from gdbheap.heap import Heap
from gdbheap.report.stats import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Options) -> stats.Stats:
    raise UsageError("heap stats calls malloc_stats() in the process: it needs a live one that may be stopped")


def _render(shown: Shown[stats.Stats]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="stats",
    question="What does the process itself say? Calls malloc_stats() and sets its words beside ours (live only)",
    text="""Calls malloc_stats() in the process, after proving that the call cannot hang: no thread is inside malloc, no
    arena is locked, nobody holds stderr's lock. What it prints is taken from its write() calls, which are not made,
    wherever the process's standard error leads, and the process is left as it was. Refused in one line when the proof
    fails: try again.""",
    example="heap stats",
    answer=_answer,
    render=_render,
    options=(SECCOMP,),
    rows="rows",
    sorts={
        "order": lambda row: 0,
        "arena": lambda row: row.arena,
        "what": lambda row: row.what,
        "theirs": lambda row: row.theirs,
        "ours": lambda row: row.ours,
    },
)
