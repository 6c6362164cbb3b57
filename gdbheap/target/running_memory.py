"""The memory of a process that is read while it runs: all addresses but those that nobody may answer for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gdbheap._native import Space
from gdbheap.target.file_systems import FileSystems
from gdbheap.target.machine import LOWEST_ADDRESS, Machine
from gdbheap.target.mappings import Mapping, parse_maps
from gdbheap.target.process import FROM_PROCESS, MappingRow, mapped_file
from gdbheap.target.procfs import ProcessFolder
from gdbheap.target.ranges import Ranges, joined, subtract

__all__ = ["RunningMemory"]

# Lines of maps with an inode.
_OF_FILES = re.compile(rb"^\S+ \S+ \S+ \S+ [1-9][^\n]*$", re.MULTILINE)


class RunningMemory:
    """``space`` reads whatever address it is given from the process, also what came after it was made: nothing is known
    of pages. ``unanswered``: mappings of files that another user's program may never answer for, which are left out."""

    def __init__(self, folder: ProcessFolder, machine: Machine, end: int) -> None:
        """``end``: of the addresses that are read."""
        self._folder, self._machine, self._end = folder, machine, end
        self._of_files: list[bytes] = []
        self.unanswered: Ranges = []
        self.space = self._all_but([])

    def renew(self, maps: bytes) -> bool:
        """Take in what is mapped now; return whether ``space`` is another one since. ``maps``: of ``/proc/PID``."""
        of_files = _OF_FILES.findall(maps)
        if of_files == self._of_files:
            return False
        self._of_files = of_files
        found = joined([(one.start, one.end) for one in self._find_unanswered(parse_maps(b"\n".join(of_files)))])
        if found == self.unanswered:
            return False
        self.unanswered, self.space = found, self._all_but(found)
        return True

    def _find_unanswered(self, mappings: Iterable[Mapping]) -> Iterator[Mapping]:
        systems = FileSystems(self._folder)
        known: dict[tuple[str, int, str], bool] = {}
        for one in mappings:
            key = one.device, one.inode, one.path
            if key not in known:
                answered = systems.is_answered(one.device)
                known[key] = mapped_file(self._folder, systems, one) is not None if answered is None else answered
            if not known[key]:
                yield one

    def _all_but(self, left_out: Ranges) -> Space:
        rows = [
            MappingRow(start, end, FROM_PROCESS, -1, 0)
            for start, end in subtract([(LOWEST_ADDRESS, self._end)], left_out)
        ]
        # "Shared": by /proc/PID/mem, which makes no copies of pages and parts none that a fork shares.
        return Space.for_process(self._machine, self._folder, rows, None, [], True, None)
