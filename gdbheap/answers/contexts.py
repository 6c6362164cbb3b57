"""List the memory contexts of a PostgreSQL backend, with their sizes and free bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar

from gdbheap.contents.postgresql.contexts import PostgresqlContent
from gdbheap.contents.python.text.disclosure import hidden
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap


@dataclass(frozen=True)
class ContextRow:
    """One memory context, as in ``pg_backend_memory_contexts``.

    ``bytes``: the bytes that the context got from malloc. ``free``: the part of ``bytes`` that the context can hand out
    again. ``used``: the part of ``bytes`` that is not free.
    """

    name: str
    ident: str | None
    level: int
    bytes: int
    free: int
    used: int
    address: int


@dataclass(frozen=True)
class ContextName:
    """The sums over all contexts with the same name. ``example``: the ``ident`` of the largest of these contexts with
    an ident.
    """

    name: str
    count: int
    bytes: int
    free: int
    used: int
    example: str | None = None


@dataclass(frozen=True)
class Contexts:
    """The answer of ``heap contexts``. The sums count all contexts, even if rows were cut."""

    sums: ClassVar[tuple[str, ...]] = ("bytes", "free", "used")
    rows: list[ContextRow]
    count: int
    bytes: int
    free: int
    used: int
    by_name: list[ContextName] = field(default_factory=list)


def contexts(heap: Heap) -> Contexts:
    """Return all contexts, each before its children. Raises Unsupported if the target has none."""
    rows = [
        ContextRow(
            found.name, _ident(heap, found.ident), found.level, found.total, found.free, found.used, found.address
        )
        for found in heap.content(PostgresqlContent).contexts
    ]
    size, free, used = (sum(getattr(row, key) for row in rows) for key in ("bytes", "free", "used"))
    return Contexts(rows, len(rows), size, free, used, by_name(rows))


def by_name(rows: Sequence[ContextRow]) -> list[ContextName]:
    """Return the sums of the contexts of each name, those with the most bytes first."""
    found: defaultdict[str, list[ContextRow]] = defaultdict(list)
    for row in rows:
        found[row.name].append(row)
    return sorted((_summed(name, own) for name, own in found.items()), key=lambda row: (-row.bytes, row.name))


def _summed(name: str, rows: Sequence[ContextRow]) -> ContextName:
    example = max((row for row in rows if row.ident is not None), key=lambda row: row.bytes, default=None)
    size, free, used = (sum(getattr(row, key) for row in rows) for key in Contexts.sums)
    return ContextName(name, len(rows), size, free, used, None if example is None else example.ident)


def _ident(heap: Heap, ident: str | None) -> str | None:
    """Return the ident (None if the context has none), hidden if contents may not be shown. The ident may be a text of
    the program's users, such as a query.
    """
    return ident if ident is None or heap.disclosure.contents else hidden("str", len(ident))
