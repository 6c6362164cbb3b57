"""Records of the changes of holders since an earlier snapshot."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from gdbheap.dataclass import dataclass

__all__ = ["CHANGED", "GONE", "NEW", "Change", "HolderChange", "Since"]

Change = Literal["new", "gone", "changed"]
NEW: Change = "new"
GONE: Change = "gone"
CHANGED: Change = "changed"


@dataclass(frozen=True)
class HolderChange:
    """A holder of the first snapshot, of the last one, or of both, and how it changed.

    ``looks``: the holder's bytes in each snapshot. ``counts``: the number of its blocks in each snapshot, None where a
    snapshot lacks the holder. ``bytes`` and ``count``: the change from the first snapshot to the last.
    """

    path: str
    kind: str
    what: str | None
    address: int | None
    state: Change
    bytes: int
    looks: list[int]
    count: int | None
    counts: list[int | None]
    at_least: bool = False
    split_paths: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Since:
    """The changes since an earlier snapshot, in bytes."""

    seconds: float
    rss: int | None
    in_use: int | None
    free: int | None
    holders: list[HolderChange] | None
