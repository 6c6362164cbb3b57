"""The rows of ``heap retained``: objects and blocks, and what their removal would free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from gdbheap.contents.python.names.paths import is_own_dict
from gdbheap.dataclass import dataclass
from gdbheap.documents import renamed_keys

__all__ = ["EqualObject", "RetainedRow"]


@dataclass(frozen=True)
class EqualObject:
    """An object that retains the same bytes as the first object of its row, to within 1 %."""

    address: int
    type: str
    path: str | None
    chain: str


@dataclass(frozen=True)
class RetainedRow:
    """A row: one or several objects, and how many bytes their removal would free (``retained``).

    A row stands for an object, the objects of one type, a module with its dict, a global, or a thread. In a program
    without Python, blocks take the place of objects. ``address``: the address of the object, None for all other rows.

    Fields of an object's row: ``path``: the path to the object as a Python expression, or None. ``chain``: the same
    path as text. Only the first MAX_PATHS objects have these two. ``same``: the objects below this one that retain the
    same bytes, each held by the one before it. Objects above this one may retain the same bytes too, but source code
    cannot name them.

    Fields of other rows: objects of one type may each have several holders, so that no single holder retains them.
    gdbheap examines some of these objects, the examples. ``other_holders``: the paths of holders that hold several
    examples. ``chain``: the path to one example. ``path``: the same path as a Python expression, if at least half of
    the examples share it. For a library's static variable (GLOBAL), a library's data (MEMORY) and the modules of one
    file, ``chain`` is the name of the row."""

    address: int | None
    type: str
    count: int
    own: int
    retained: int
    path: str | None = None
    chain: str | None = None
    other_holders: list[str] = field(default_factory=list)
    same: list[EqualObject] = field(default_factory=list)
    absent: int = 0
    shared: int = 0
    at_most: int | None = None
    at_least: bool = False

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``content`` of a format 1 file with today's key names."""
        return renamed_keys(content, {"bytes": "own", "holders": "other_holders"})

    @property
    def most(self) -> int:
        """The most bytes that the removal of the object may free."""
        return self.retained if self.at_most is None else self.at_most

    @property
    def inner(self) -> list[RetainedRow]:
        """The objects in ``same``, each in the form of a row."""
        return [
            RetainedRow(one.address, one.type, 1, self.own, self.retained, one.path, one.chain) for one in self.same
        ]

    @property
    def innermost(self) -> RetainedRow:
        """The last object in the chain of ``same`` that has a name in Python. If no object has a name, the last object
        of the chain.
        """
        rows = [self, *self.inner]
        named = [row for row in rows if row.path is not None and not is_own_dict(row.path)]
        return named[-1] if named else rows[-1]
