"""``heap contexts``: which memory contexts of a PostgreSQL backend hold the memory?"""

from __future__ import annotations

from gdbheap.answers import contexts
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Pictured
from gdbheap.commands.surface.pictures import draw
from gdbheap.heap import Heap
from gdbheap.report.words.contexts import render

__all__ = ["COMMAND"]


def _answer(heap: Heap, options: Pictured) -> contexts.Contexts:
    found = contexts.contexts(heap)
    if options.draws:
        from gdbheap.report.formats.trees import contexts_tree

        draw(options, contexts_tree(found), "What memory contexts have")
    return found


def _render(shown: Shown[contexts.Contexts, Pictured]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="contexts",
    question="Which memory contexts of a PostgreSQL backend hold the memory?",
    text="""A row for each memory context: the bytes that it has from malloc, how many of them it can hand out again,
    how far it is from TopMemoryContext, its name, and what it is for, such as the query of a plan. These are the
    total_bytes, free_bytes and used_bytes of the view pg_backend_memory_contexts, of any backend and of cores, while a
    query runs as well, and without asking the server. PostgreSQL 13 to 18; other programs have no memory contexts.

    The first table sums up the contexts of each name, as prepared statements have thousands.

    --sort=tree lists each context before those that are below it. --format, --folded, --svg, --speedscope and --pprof
    draw that tree: each context above the one that it belongs to, with what it can hand out again as a part of its
    own; what contexts are for is not in there. Contexts that are more than 100 levels from TopMemoryContext are one
    part, "deeper levels"; with more than 20,000 contexts it begins earlier.""",
    example="heap contexts --top=10",
    needs=TARGET,
    options=Pictured,
    answer=_answer,
    render=_render,
    rows="contexts",
    listed="memory contexts",
    sorts={
        "total": lambda row: row.total,
        "free": lambda row: row.free,
        "used": lambda row: row.used,
        "tree": lambda row: 0,
    },
    top=20,
    program="PostgreSQL",
    writes=True,
)
