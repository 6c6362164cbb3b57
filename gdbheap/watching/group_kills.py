"""Count the processes that the kernel's OOM killer has killed in the control groups of the watched processes."""

from __future__ import annotations

from pathlib import Path

from gdbheap.dataclass import dataclass
from gdbheap.host.cgroup import count_kills, find_kills, kills_of


@dataclass
class CountedGroup:
    """A control group with watched processes.

    ``path``: the file with the kernel's count (``find_kills``).
    ``reported``: the count of the kills that are reported or that are older than the watch.
    ``members``: the number of watched processes in the group.
    """

    path: Path | None
    reported: int
    members: int = 0


class GroupKills:
    """The groups of the watched processes, by the text of ``/proc/PID/cgroup``."""

    def __init__(self) -> None:
        self._groups: dict[bytes, CountedGroup] = {}
        # The count of the watched group while it has no watched process.
        self._empty: dict[Path, int] = {}

    def begin(self, folder: Path) -> None:
        """Count the kills in a group from now on, even before it has a watched process. A process may be killed before
        the watch sees it, and is still seen while it ends."""
        path = kills_of(folder)
        self._empty = {} if path is None else {path: count_kills(path) or 0}

    def enter(self, groups: bytes | None, process: str) -> None:
        """Count a process as a member of its groups. ``process``: its folder in /proc."""
        if groups is None:
            return
        if groups not in self._groups:
            path = find_kills(process)
            before = None if path is None else self._empty.get(path)
            self._groups[groups] = CountedGroup(path, (count_kills(path) or 0) if before is None else before)
        self._groups[groups].members += 1

    def leave(self, groups: bytes | None) -> None:
        """Remove a member that has ended or moved. A group without members is forgotten."""
        if groups in self._groups:
            self._groups[groups].members -= 1
            if not self._groups[groups].members:
                gone = self._groups.pop(groups)
                if gone.path in self._empty:
                    self._empty[gone.path] = gone.reported

    def take(self, groups: bytes | None) -> bool:
        """Return whether the OOM killer has killed a process in these groups for which this function did not return
        True yet. Return True if the kernel does not say it.
        """
        group = None if groups is None else self._groups.get(groups)
        kills = None if group is None else count_kills(group.path)
        if group is None or kills is None:
            return True
        if kills <= group.reported:
            return False
        group.reported += 1
        return True
