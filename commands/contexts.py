"""``heap contexts``: list the memory contexts of a PostgreSQL backend."""

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

        draw(options, contexts_tree(found), "Memory contexts, by bytes")
    return found


def _render(shown: Shown[contexts.Contexts, Pictured]) -> str:
    return render(shown.answer, shown.style)


COMMAND = Command(
    noun="contexts",
    summary="List the memory contexts of a PostgreSQL backend",
    text="""Each row describes a memory context: its bytes from malloc, the free bytes among them, its depth below
    TopMemoryContext, its name and its purpose. The first table adds up the contexts that have the same name.""",
    example="heap contexts --top=10",
    details="""The figures equal total_bytes, free_bytes and used_bytes of the view pg_backend_memory_contexts. gdbheap
    reads them from any backend or core, even while a query runs. gdbheap sends no request to the server. gdbheap knows
    the memory contexts of PostgreSQL 13 to 18; only PostgreSQL has memory contexts.

    `--sort=tree` lists each context before the contexts below it. `--format`, with the options that belong to it, draws
    this tree. The free bytes of a context are drawn as one of its children. The drawing does not show the purposes of
    the contexts. All contexts more than 100 levels down are merged into one, named "deeper levels". If there are more
    than 20,000 contexts, gdbheap draws fewer levels.""",
    needs=TARGET,
    options=Pictured,
    answer=_answer,
    render=_render,
    rows="rows",
    listed="memory contexts",
    sorts={
        "total": lambda row: row.bytes,
        "free": lambda row: row.free,
        "used": lambda row: row.used,
        "tree": lambda row: 0,
    },
    top=20,
    program="PostgreSQL",
    writes=True,
)
