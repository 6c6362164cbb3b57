"""A source of tables: a process or core that is yet to be read, a snapshot, or an export folder."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gdbheap.export.gathered import Gathered

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """A source of tables.

    ``name``: as the user typed it; ``gather``: reads the tables with these names (of ``declaration.TABLES``), with the
    graph of references (True), without (False), or with it if it is quick to build (None); ``folder``: of an export,
    None for other sources; ``is_kept``: the source is already stored, so it is quick to read, and may lack tables."""

    name: str
    gather: Callable[[Collection[str], bool | None], Gathered]
    folder: str | None = None
    is_kept: bool = False
