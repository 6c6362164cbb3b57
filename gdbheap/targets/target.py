"""The interface of every kind of target: one address space at one moment."""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import field
from typing import Any

from gdbheap import _native
from gdbheap._native import Pages, Space
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError
from gdbheap.host.identity import Identity
from gdbheap.host.procfs import Rss
from gdbheap.machines.machine import THIS_MACHINE, Machine
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.mappings import HUGE_PAGES, Mapping, Mappings
from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.unseen_files import UnseenFile
from gdbheap.text import IN_GDB

AT_PHDR = 3
AT_PAGESZ = 6
AT_ENTRY = 9
AT_RANDOM = 25
AT_SYSINFO_EHDR = 33


@dataclass(frozen=True)
class Thread:
    """A thread at the moment of the stop.

    ``thread_pointer``: the address at which the C library keeps its thread-local data.
    ``registers``: the general registers, as far as known.
    ``failed``: whether the thread caused the process's end, by a fault or by abort().
    """

    tid: int
    thread_pointer: int
    sp: int
    pc: int
    name: str = ""
    failed: bool = False
    registers: Sequence[int] = ()


@dataclass(frozen=True)
class Meanwhile:
    """The growth of RSS in bytes (negative: it shrank) in the ``seconds`` since the process was released."""

    rss: int
    seconds: float


@dataclass(frozen=True)
class Damage:
    """A contradiction in the target's data.

    ``address``: where it is.
    ``expected``, ``found``: the expected data, and the data that was found.
    ``is_absent``: whether memory is missing there. If not, it has wrong contents.
    """

    address: int
    what: str
    expected: str
    found: str
    transient: bool = False
    is_absent: bool = False

    @classmethod
    def of(cls, found: _native.Damage, transient: bool = False) -> Damage:
        """Return the record for damage that the native code found. ``transient``: a thread may be changing the data."""
        return cls(found.address, found.what, found.expected, found.found, transient, found.is_absent)


class _Bases:
    """The base addresses of loaded objects as a sequence, so that ``bisect`` can search them without a list of them."""

    def __init__(self, objects: Sequence[LoadedObject]) -> None:
        self._objects = objects

    def __len__(self) -> int:
        return len(self._objects)

    def __getitem__(self, index: int) -> int:
        return self._objects[index].base


@dataclass(eq=False)
class Target:
    """One address space at one moment. A process and a core fill in its fields.

    ``pages``: the residency, None if unknown.
    ``space``: the memory; it raises ``Fault`` where memory is unreadable.
    ``refusal``: why no memory at all can be read, or None. Mappings and residency are valid in any case.
    ``locked``: the ranges locked into memory (mlock), as far as known.
    ``partial``: whether an answer may lack data that was cut off (a truncated core, refused memory).
    ``missing``: the ranges that a truncated core lacks.
    ``unseen``: the programs and libraries whose ELF headers are neither in memory nor on this machine. Their data
    cannot be interpreted.
    ``modified``: when a core's file was last written, in seconds since 1970; None if unknown.
    ``words``: the target's name on a shell's command line, if it is neither the process id nor the core's path.
    ``proc``: the folder below /proc of a process on this machine, as a path that never names another process.
    ``arguments``: the beginning of the command line, as the program left it.
    ``remote``: whether memory comes through gdb from another machine, slowly.
    ``offered_in_gdb``: for a target that gdb holds, the commands that can be typed in gdb; None if the target was named
    in a shell.
    """

    kind: str
    pid: int | None = None
    core: str | None = None
    exe: str | None = None
    arguments: Sequence[str] = ()
    proc: str | None = None
    machine: Machine = THIS_MACHINE
    mappings: Mappings = field(default_factory=Mappings)
    pages: Pages | None = None
    space: Space = field(default_factory=lambda: Space.for_core(THIS_MACHINE, [], []))
    threads: list[Thread] = field(default_factory=list)
    objects: list[LoadedObject] = field(default_factory=list)
    auxv: dict[int, int] = field(default_factory=dict)
    rss: Rss = Rss(None, None, "unknown")
    warnings: list[str] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    partial: bool = False
    missing: Ranges = field(default_factory=list)
    unseen: list[UnseenFile] = field(default_factory=list)
    modified: float | None = None
    words: str | None = None
    remote: bool = False
    offered_in_gdb: frozenset[str] | None = None
    refusal: GdbheapError | None = None
    locked: Ranges = field(default_factory=list)
    stopped_seconds: float | None = None
    identity: Identity = Identity()

    def meanwhile(self) -> Meanwhile | None:
        """Return the change of RSS since the target was released.

        Return None if the target was not released, or if summing takes long.
        """
        return None

    @property
    def cut_short(self) -> str | None:
        """The reason why the answer may lack existing data; None if it lacks none."""
        return None

    @property
    def unread_symbols(self) -> list[str]:
        """Warnings about symbols of the target's files that were not read."""
        rooms = {loaded.elf.room: None for loaded in self.objects if loaded.elf is not None}
        return [line for room in rooms for line in room.warnings()]

    @property
    def finishing(self) -> list[str]:
        """The command-line options with which a command has time to read the data that this target lacks; empty if none
        helps.
        """
        return []

    def command_lines(self, noun: str, *options: str) -> list[str]:
        """Return the command about this target as a line to paste: for gdb if gdb holds the target, else for a shell.

        Empty if the command cannot be typed there.
        """
        if self.offered_in_gdb is not None:
            is_offered = noun.partition(" ")[0] in self.offered_in_gdb
            return [" ".join(filter(None, [IN_GDB, noun, *options]))] if is_offered else []
        where = self.words or (shlex.quote(self.core) if self.core else str(self.pid or ""))
        if self.remote or not where:
            return []
        return [" ".join(filter(None, ["gdbheap", noun, where, *options]))]

    @property
    def main_stack(self) -> Mapping | None:
        """The stack of the first thread; None if it is unknown.

        The kernel puts the 16 bytes of AT_RANDOM at its far end (execve(2)).
        """
        return self.mappings.find(self.auxv.get(AT_RANDOM, 0))

    @property
    def kept(self) -> Ranges:
        """Ranges in which madvise() does not reduce RSS. They are locked memory, and hugetlbfs, which RSS does not
        include.
        """
        huge = [(mapping.start, mapping.end) for mapping in self.mappings if mapping.path == HUGE_PAGES]
        return joined(sorted(self.locked + huge))

    @property
    def huge_mapped(self) -> list[tuple[int, int, int]]:
        """The (start, end, bytes in transparent huge pages) of the mappings that have such pages, as far as known."""
        return []

    @property
    def lazily_freed(self) -> list[tuple[int, int, int]]:
        """The (start, end, lazily freed bytes) of the mappings with pages that MADV_FREE freed; empty if unknown."""
        return []

    @property
    def written(self) -> list[tuple[int, int, int]] | None:
        """The (start, end, bytes in anonymous pages) of the mappings that have such pages; None if unknown."""
        return None

    def sharing(self, start: int, end: int) -> tuple[int, int] | None:
        """Return (bytes that only this process maps, shared bytes) of the whole resident pages in [start, end).

        Pages are shared after fork(), for example. Return None if the numbers are unknown.
        """
        return None

    def unseen_data(self) -> list[tuple[UnseenFile, Ranges]]:
        """Return (file, data ranges) of each of the ``unseen`` files.

        The ranges are the file's readable mappings without code. The .bss of a file is missing, because it is anonymous
        memory after the file's last mapping.
        """
        paths: dict[str, Ranges] = {file.path: [] for file in self.unseen}
        for one in self.mappings:
            if one.path in paths and one.readable and not one.executable:
                paths[one.path].append((one.start, one.end))
        return [(file, joined(paths[file.path])) for file in self.unseen]

    @property
    def lacking(self) -> int:
        """The number of bytes in ``missing``, which a truncated core lacks. They may contain pointers."""
        return sum(end - start for start, end in self.missing)

    def system_call(self, thread: Thread) -> int | None:
        """Return the number of the system call in which a thread waits, or which it has just made. None if there is
        none.
        """
        calls = self.machine.system_calls
        found = calls.number(self.space.read_available(thread.pc - calls.size, calls.size), thread.registers)
        if found is None and calls.set_back:
            found = calls.number(self.space.read_available(thread.pc, calls.size), thread.registers)
        return found

    def object_of(self, address: int) -> LoadedObject | None:
        """Return the ELF object whose file mappings or .bss contain ``address``, or None."""
        index = bisect_right(_Bases(self.objects), address) - 1
        if index < 0 or not self.objects[index].contains(address):
            return None
        return self.objects[index]

    def describe(self) -> dict[str, Any]:
        """Return the part of the JSON key "target" that needs no heap: the kind of target and its identity."""
        return {"kind": self.kind, "pid": self.pid, "core": self.core, "exe": self.exe, **vars(self.identity)}
