"""A source of tables: a process or core still to be read, a snapshot, or an exported folder."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from gdbheap.export.gathered import Gathered

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """A source of tables. ``name``: as it was typed.

    ``gather``: reads the tables with these names (of ``declaration.TABLES``), with the graph of references (True),
    without (False), or if that is quick (None). ``folder``: of an export, if it is one. ``is_kept``: the source is
    quickly read, and may lack tables."""

    name: str
    gather: Callable[[Collection[str], bool | None], Gathered]
    folder: str | None = None
    is_kept: bool = False
