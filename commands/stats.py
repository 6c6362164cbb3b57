"""``heap stats``: compare gdbheap's sums with those of the process's own malloc_stats()."""

from __future__ import annotations

from gdbheap.allocators.registry import MALLOC
from gdbheap.answers import stats
from gdbheap.answers.arenas import arenas
from gdbheap.commands.inferior_calls.inferior_call import STATS, Calls
from gdbheap.commands.surface.declaration import Call, Command, Shown
from gdbheap.commands.surface.needs import PROCESS
from gdbheap.commands.surface.options import Common, under_seccomp
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.heap import Heap
from gdbheap.report.words.stats import render

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of ``heap stats``. ``seccomp``: call malloc_stats() even if a seccomp filter may kill the process for
    it.
    """

    seccomp: bool = under_seccomp()


def _answer(heap: Heap, options: Options) -> stats.Stats:
    raise UsageError("heap stats calls malloc_stats() in the process: it needs a live process that may be stopped")


def _call(heap: Heap, calls: Calls, options: Options) -> stats.Stats:
    heap.allocator(MALLOC)
    ours = arenas(heap)
    return stats.compare(ours, calls.stats_text(heap, options.seccomp))


def _render(shown: Shown[stats.Stats, Options]) -> str:
    return render(shown.answer, shown.style, shown.raw)


COMMAND = Command(
    noun="stats",
    summary="Compare arenas with the process's own malloc_stats() (live)",
    text="""gdbheap makes the call only if it has proven that the call cannot hang: no thread is inside malloc, and no
    lock is held. If the proof fails, one line says so; then try again.""",
    example="heap stats",
    details="""The proof requires that no thread is inside malloc, no arena is locked, and no thread holds stderr's
    lock. gdbheap intercepts the write() calls of malloc_stats() and takes their text. Nothing appears on the standard
    error of the process, and the process is left unchanged.""",
    needs=PROCESS,
    options=Options,
    answer=_answer,
    render=_render,
    call=Call(STATS, _call, "no function can be called in a core: 'heap arenas' shows the same figures without a call"),
    rows="rows",
    sorts={
        "order": lambda row: 0,
        "arena": lambda row: row.arena_name,
        "what": lambda row: row.what,
        "theirs": lambda row: row.theirs,
        "ours": lambda row: row.ours,
    },
)
