"""``heap stats``: what does the process itself say?

The call of malloc_stats() needs gdb: gdb_register makes it by the rules of calling.py and capturing.py, and a shell
starts gdb for it (through_gdb). What is here is the declaration that both sides share."""

from __future__ import annotations

from typing import Any

from gdbheap.answers import stats
from gdbheap.commands.declaration import SECCOMP, Command, Options, Shown
from gdbheap.errors import UsageError
from gdbheap.heap import Heap
from gdbheap.report.stats import render

__all__ = ["COMMAND", "rebuilt"]


def _answer(heap: Heap, options: Options) -> stats.Stats:
    raise UsageError("heap stats calls malloc_stats() in the process: it needs gdb")


def _render(shown: Shown[stats.Stats]) -> str:
    return render(shown.answer, shown.style)


def rebuilt(content: dict[str, Any]) -> stats.Stats:
    """The answer from its JSON document, as gdb computes it for a shell. Raises KeyError, TypeError on another one."""
    rows = [stats.StatsRow(**row) for row in content["rows"]]
    return stats.Stats(text=content["text"], agrees=content["agrees"], rows=rows)


COMMAND = Command(
    noun="stats",
    question="What does the process itself say? Calls malloc_stats() and sets its words beside ours (live only)",
    text="""Calls malloc_stats() in the process, after proving that the call cannot hang: no thread is inside malloc, no
    arena is locked, nobody holds stderr's lock. What it prints is captured in a file in memory, wherever the process's
    standard error leads, and the process is left as it was. Refused in one line when the proof fails: try again.""",
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
