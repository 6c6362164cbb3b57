"""A process that runs on while it is read, all but one of its threads, which stands still at that moment.

What lies on that thread's stack, and what its frames point to, stays as it is meanwhile. All else may change between
two reads: what is read of it must be checked. Bytes come through ``/proc/PID/mem``, which stays with this address
space: after exec() nothing can be read any more.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress

from gdbheap._native import Space, Unwinder, Unwound
from gdbheap.host import procfs
from gdbheap.host.file_systems import FileSystems
from gdbheap.host.procfs import Named
from gdbheap.machines.machine import Machine
from gdbheap.refusals import refusal
from gdbheap.targets.elf import ElfFiles, LoadedObject, SymbolRoom, find_objects
from gdbheap.targets.mappings import Mapping, parse_maps
from gdbheap.targets.process import FROM_FILE, FROM_PROCESS, MappedFiles, MappingRow, elf_candidates, executable
from gdbheap.targets.ranges import within
from gdbheap.targets.running_memory import RunningMemory
from gdbheap.targets.target import Target
from gdbheap.targets.unwind_tables import Module, modules_of, room_for_tables

# Seconds after which the mappings are looked at again: an object may have been unloaded and another be in its place.
PERIOD = 1.0
_CODE = re.compile(rb"^[^\n]* r-xp [^\n]*$", re.MULTILINE)


class Running(Target):
    """The process that is meant as it is at each moment. ``objects`` are those that were loaded when they were last
    looked at; ``age`` counts how often they were found changed.

    Its ``space`` reads whatever address it is given from the process, also what came after it was made: nothing is
    known of pages. Only mappings of files that another user's program may never answer for are left out, and the
    ``space`` is another one when these change. ``find_objects`` reads the heads of files, which are there. Raises
    NoTarget, NotPermitted.
    """

    def __init__(self, process: Named, machine: Machine) -> None:
        self.folder = refusal.open_folder(process)
        super().__init__("process", pid=self.folder.pid, proc=self.folder.place, machine=machine)
        self._systems = FileSystems(self.folder)
        self._files = ElfFiles(self._systems)
        self._memory = RunningMemory(self.folder, machine, machine.user_end)
        self.space = self._memory.space
        self.exe = executable(self.folder)
        with suppress(OSError):
            self.auxv = procfs.parse_auxv(machine, self.folder.read("auxv"))
        self.age = 0
        self._said: list[str] = []
        self._tables = self.space
        self._unwinder = Unwinder([], 0)
        self._code: list[bytes] = []
        self._looked = 0.0
        # Code of no object (a compiler's at run time) that was met since the mappings were last looked at.
        self._strange: list[Mapping] = []
        self._bases: list[int] = []
        self.look_again()

    def look_again(self) -> bool:
        """Find the objects that are loaded now; whether they are others than before."""
        self._looked, self._strange = time.monotonic(), []
        try:
            text = self.folder.read("maps", procfs.TABLE_LIMIT)
        except OSError:
            return False
        code = _CODE.findall(text)
        # Empty of one that has ended: what is known of it stays.
        if not text or (not self._memory.renew(text) and code == self._code):
            return False
        self.space = self._memory.space
        self._said += self._systems.warnings
        self._systems = self._files.systems = FileSystems(self.folder)
        self._code, self.age = code, self.age + 1
        self.mappings = parse_maps(text)
        self.objects = find_objects(self.machine, self.mappings, self.space, self._files, self._candidates)
        self._bases = [loaded.base for loaded in self.objects]
        modules = modules_of(self, self.space)
        self._tables = self._table_space(modules)
        self._unwinder.renew(modules, room_for_tables())
        return True

    @property
    def symbol_room(self) -> SymbolRoom:
        """The room for the symbols of all its files."""
        return self._files.room

    @property
    def unread(self) -> list[str]:
        """Return a line each for what of its files was not read so far."""
        return list(dict.fromkeys([*self._said, *self._systems.warnings, *self._files.room.warnings()]))

    def _candidates(self, mapping: Mapping) -> list[str]:
        return elf_candidates(self.folder, self._systems, self.exe, mapping)

    def _table_space(self, modules: Sequence[Module]) -> Space:
        """Where the tables are read: from the files, so that no page of theirs is put into the process."""
        files = MappedFiles(self.folder, self._systems)
        rows = [row for module in modules for row in self._table_rows(module, files)]
        rows = [row for row in rows if row.kind == FROM_FILE or not within(self._memory.unanswered, row.start, row.end)]
        return Space.for_process(self.machine, self.folder, _disjoint(rows), None, files.paths, True, None)

    def _table_rows(self, module: Module, files: MappedFiles) -> list[MappingRow]:
        start, end = module.table_start, module.table_end
        mapping = self.mappings.find(start)
        if mapping is None or mapping.writable:
            return [MappingRow(start, end, FROM_PROCESS, -1, 0)] if end > start else []
        index = files.index(mapping) if mapping.path.startswith("/") else -1
        kind, end = FROM_PROCESS if index < 0 else FROM_FILE, min(end, mapping.end)
        return [MappingRow(start, end, kind, index, mapping.offset + start - mapping.start)]

    def unwind(self, registers: Sequence[int], stack: bytes | None = None) -> Unwound:
        """The stack of the thread that stands still with these registers (as DWARF numbers them, rip last), or that has
        run on, with the bytes that were at its stack pointer."""
        if time.monotonic() - self._looked > PERIOD:
            self.look_again()
        found = self._unwinder.unwind(self._tables, self.space, registers, stack)
        if found.unknown is not None and self._is_new(found.unknown) and self.look_again():
            found = self._unwinder.unwind(self._tables, self.space, registers, stack)
        return found

    def _is_new(self, counter: int) -> bool:
        """Whether the code there may be an object's that was loaded since; remembered where it is not."""
        if any(counter in mapping for mapping in self._strange):
            return False
        try:
            mapping = parse_maps(self.folder.read("maps", procfs.TABLE_LIMIT)).find(counter)
        except OSError:
            return False
        if mapping is not None and not mapping.path.startswith("/"):
            self._strange.append(mapping)
        return mapping is not None and mapping.path.startswith("/")

    def code_object(self, address: int) -> LoadedObject | None:
        """The object whose code is at ``address``, as far as they were known when they were last looked at."""
        index = bisect_right(self._bases, address) - 1
        if index < 0 or not self.objects[index].contains(address):
            return None
        return self.objects[index]


def _disjoint(rows: Iterable[MappingRow]) -> list[MappingRow]:
    """What a damaged header says of its tables may overlap another's: the first counts."""
    kept: list[MappingRow] = []
    for row in sorted(rows):
        if row.start < row.end and (not kept or kept[-1].end <= row.start):
            kept.append(row)
    return kept
