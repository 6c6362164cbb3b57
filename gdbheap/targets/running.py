"""A process that is read while it runs; only one of its threads is stopped at that moment.

The stack of the stopped thread, and the objects to which its frames point, do not change meanwhile. All other memory
may change between two reads, so it must be checked. The memory is read through ``/proc/PID/mem``, which stays with this
address space: after exec() nothing more can be read.
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

# Seconds after which the mappings are read again: another object may have replaced an unloaded one.
PERIOD = 1.0
_CODE = re.compile(rb"^[^\n]* r-xp [^\n]*$", re.MULTILINE)


class RunningProcess(Target):
    """A process that is read while it runs. Raises NoTarget, NotPermitted.

    ``objects``: the objects that were loaded when the mappings were last read.
    ``age``: how often these objects have changed.
    ``space``: reads any address, also in new mappings, because nothing is assumed about pages. It leaves out only files
    that another user's program serves (FUSE), because that program may never answer. When the mappings of such files
    change, ``space`` is replaced.

    ``find_objects`` reads only headers of files, whose pages are present.
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
        # Code outside all objects (made at run time) that was met since the mappings were last read.
        self._strange: list[Mapping] = []
        self._bases: list[int] = []
        self.look_again()

    def look_again(self) -> bool:
        """Find the objects that are loaded now, if the mappings of code have changed. Return whether they have
        changed.
        """
        self._looked, self._strange = time.monotonic(), []
        try:
            text = self.folder.read("maps", procfs.TABLE_LIMIT)
        except OSError:
            return False
        code = _CODE.findall(text)
        # The maps file of an ended process is empty. The known objects are then kept.
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
        """The limit for the symbols of all files of the process."""
        return self._files.room

    @property
    def unread(self) -> list[str]:
        """A line for each reason why files or symbols of the process could not be read so far."""
        return list(dict.fromkeys([*self._said, *self._systems.warnings, *self._files.room.warnings()]))

    def _candidates(self, mapping: Mapping) -> list[str]:
        return elf_candidates(self.folder, self._systems, self.exe, mapping)

    def _table_space(self, modules: Sequence[Module]) -> Space:
        """Return a space that reads unwind tables from files. A read through the process would load their pages into
        it.
        """
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
        """Return the stack of a thread with these ``registers``, in DWARF's order, the program counter last.

        ``stack``: the bytes that were at its stack pointer, if the thread has run on. Without them, the thread must
        still be stopped.
        """
        if time.monotonic() - self._looked > PERIOD:
            self.look_again()
        found = self._unwinder.unwind(self._tables, self.space, registers, stack)
        if found.unknown is not None and self._is_new(found.unknown) and self.look_again():
            found = self._unwinder.unwind(self._tables, self.space, registers, stack)
        return found

    def _is_new(self, counter: int) -> bool:
        """Return whether the code at ``counter``, a program counter, may belong to a newly loaded object.

        If the code is in no file, its mapping is remembered, which makes the next call faster.
        """
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
        """Return the object that contained the code at ``address`` when the mappings were last read; None if there was
        none.
        """
        index = bisect_right(self._bases, address) - 1
        if index < 0 or not self.objects[index].contains(address):
            return None
        return self.objects[index]


def _disjoint(rows: Iterable[MappingRow]) -> list[MappingRow]:
    """Return the rows without overlaps, which a damaged header may cause. If two rows overlap, the first one stays."""
    kept: list[MappingRow] = []
    for row in sorted(rows):
        if row.start < row.end and (not kept or kept[-1].end <= row.start):
            kept.append(row)
    return kept
