"""The memory of a process that is read while it runs, without files whose server may never answer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from gdbheap._native import Space
from gdbheap.host.file_systems import FileSystems
from gdbheap.host.procfs import ProcessFolder
from gdbheap.machines.machine import LOWEST_ADDRESS, Machine
from gdbheap.targets.mappings import Mapping, parse_maps
from gdbheap.targets.process import FROM_PROCESS, MappingRow, mapped_file
from gdbheap.targets.ranges import Ranges, joined, subtract

__all__ = ["RunningMemory", "find_unanswered"]

# Matches the lines of maps that have an inode.
_OF_FILES = re.compile(rb"^\S+ \S+ \S+ \S+ [1-9][^\n]*$", re.MULTILINE)


def find_unanswered(
    folder: ProcessFolder, mappings: Iterable[Mapping], answered_too: Collection[str] = ()
) -> Iterator[Mapping]:
    """Yield the mappings of files that another user's program serves (FUSE), because that program may never answer.

    Mappings of a file whose server is unknown are also yielded if gdbheap may not open the file.
    ``answered_too``: further devices that the kernel itself serves.
    """
    systems = FileSystems(folder)
    known: dict[tuple[str, int, str], bool] = {}
    for one in mappings:
        key = one.device, one.inode, one.path
        if one.inode and key not in known:
            answered = one.device in answered_too or systems.is_answered(one.device)
            known[key] = mapped_file(folder, systems, one) is not None if answered is None else answered
        if not known.get(key, True):
            yield one


class RunningMemory:
    """The memory of a running process.

    ``space`` reads any address from the process, also in mappings that are new, because nothing is assumed about pages.
    ``unanswered``: the mappings that ``space`` leaves out, because another user's program serves their files and may
    never answer.
    """

    def __init__(self, folder: ProcessFolder, machine: Machine, end: int) -> None:
        """Create the object without reading any mappings yet. ``end``: gdbheap reads only addresses below this one."""
        self._folder, self._machine, self._end = folder, machine, end
        self._of_files: list[bytes] = []
        self.unanswered: Ranges = []
        self.space = self._all_but([])

    def renew(self, maps: bytes) -> bool:
        """Find again which mappings must not be read. If these mappings have changed, replace ``self.space``.

        Return whether ``self.space`` was replaced. ``maps``: the text of ``/proc/PID/maps``.
        """
        of_files = _OF_FILES.findall(maps)
        if of_files == self._of_files:
            return False
        self._of_files = of_files
        mappings = find_unanswered(self._folder, parse_maps(b"\n".join(of_files)))
        found = joined([(one.start, one.end) for one in mappings])
        if found == self.unanswered:
            return False
        self.unanswered, self.space = found, self._all_but(found)
        return True

    def _all_but(self, left_out: Ranges) -> Space:
        rows = [
            MappingRow(start, end, FROM_PROCESS, -1, 0)
            for start, end in subtract([(LOWEST_ADDRESS, self._end)], left_out)
        ]
        # "Shared" selects /proc/PID/mem, which copies no pages and un-shares no page that a fork shares.
        return Space.for_process(self._machine, self._folder, rows, None, [], True, None)
