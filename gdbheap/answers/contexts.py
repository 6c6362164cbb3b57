"""The memory contexts of a PostgreSQL backend: which has how much, and how much of that is free."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.heap import Heap
from gdbheap.python.disclosure import hidden


@dataclass(frozen=True)
class ContextRow:
    """One context, as in ``pg_backend_memory_contexts``: ``total`` bytes from malloc, of which ``free`` can be handed
    out again and ``used`` are. ``level``: its distance from TopMemoryContext; ``ident``: what it is for, or None."""

    name: str
    ident: str | None
    level: int
    total: int
    free: int
    used: int
    address: int


@dataclass(frozen=True)
class Contexts:
    """The answer of ``heap contexts``; the sums are over all, also when the list is cut."""

    contexts: list[ContextRow]
    count: int
    total: int
    free: int
    used: int


def contexts(heap: Heap) -> Contexts:
    """All contexts, each before those below it. Raises Unsupported where there are none."""
    rows = [
        ContextRow(
            found.name, _ident(heap, found.ident), found.level, found.total, found.free, found.used, found.address
        )
        for found in heap.contexts
    ]
    return Contexts(
        rows, len(rows), sum(row.total for row in rows), sum(row.free for row in rows), sum(row.used for row in rows)
    )


def _ident(heap: Heap, ident: str | None) -> str | None:
    """Idents are texts of the program's users, such as a query."""
    return ident if ident is None or heap.disclosure.contents else hidden("str", len(ident))
