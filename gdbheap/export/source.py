"""What is asked for tables: a process or a core that is still to be read, a snapshot, or a folder that was exported."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gdbheap.export.gathered import Gathered

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """``name`` as it was typed. ``gather``: reads the tables with these names (some of those of
    ``declaration.TABLES``), with the graph of references (True), without (False) or where it is quick (None).
    ``folder``: where they are, of one that was exported. ``is_kept``: it is read at once, and may lack some."""

    name: str
    gather: Callable[[Collection[str], bool | None], Gathered]
    folder: str | None = None
    is_kept: bool = False
