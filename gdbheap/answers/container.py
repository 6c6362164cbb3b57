"""Divide the memory of a process's control group among its owners, without reading the process's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields
from typing import Any, ClassVar

from gdbheap.dataclass import dataclass
from gdbheap.host.cgroup import ControlGroup, Pressure
from gdbheap.host.procfs import Rss
from gdbheap.host.tmpfs import TmpfsFile

__all__ = ["Container", "Pressure", "container"]

MOST_FILES = 100


@dataclass(frozen=True)
class Container(ControlGroup):
    """The control group (see ``ControlGroup``), and the bytes of its memory by owner.

    ``own``: this process's anonymous memory. ``others``: the anonymous memory of other processes. ``cache``: page
    cache. ``files``: tmpfs files. ``rest``: the remaining memory. ``moved``: memory of this process that is not charged
    to the group."""

    keys: ClassVar[dict[str, str]] = {
        "path": "folder",
        "file": "page_cache",
        "swap": "swapped",
        "own": "own_anonymous",
        "others": "other_processes",
        "moved": "not_charged",
        "files": "tmpfs_files",
    }
    own: int | None = None
    others: int | None = None
    cache: int | None = None
    rest: int | None = None
    moved: int = 0
    files: list[TmpfsFile] = field(default_factory=list)


def container(group: ControlGroup | None, rss: Rss, files: Sequence[TmpfsFile] = ()) -> Container | None:
    """Return the group with the parts of its memory; None if there is no group.

    ``rss``: the figures of one process. ``files``: the tmpfs files that this process does not map.
    """
    if group is None:
        return None
    known: dict[str, Any] = {field.name: getattr(group, field.name) for field in fields(ControlGroup)}
    own = rss.anonymous if rss.proportional is None else rss.proportional
    cache = None if group.file is None else max(0, group.file - (group.shmem or 0))
    if own is None or group.anon is None:
        return Container(**known, own=own, cache=cache, files=list(files))
    charged = min(own, group.anon)
    parts = (group.anon, cache, group.shmem, group.kernel)
    rest = max(0, group.current - sum(part or 0 for part in parts))
    others, moved = group.anon - charged, own - charged
    return Container(**known, own=own, others=others, cache=cache, rest=rest, moved=moved, files=list(files))
