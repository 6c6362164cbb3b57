"""A source of tables: a process or core that is yet to be read, a snapshot, or an export folder."""

from __future__ import annotations

from collections.abc import Callable, Collection

from gdbheap.dataclass import dataclass
from gdbheap.export.gathered import Gathered

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """A source of tables.

    ``name``: as the user typed it.
    ``gather``: a function that reads tables. Its arguments are the names of the tables (of ``declaration.TABLES``), and
    whether to build the graph of references (None: only if that is quick).
    ``folder``: the folder of an export, None for other sources.
    ``is_kept``: whether the source is a snapshot, which is quick to read but may lack tables.
    """

    name: str
    gather: Callable[[Collection[str], bool | None], Gathered]
    folder: str | None = None
    is_kept: bool = False
