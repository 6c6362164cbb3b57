"""What every target offers, whatever it is: one address space at one moment."""

from __future__ import annotations

import shlex
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gdbheap import _native
from gdbheap._native import Pages, Space
from gdbheap.errors import GdbheapError
from gdbheap.host.identity import Identity
from gdbheap.host.procfs import Rss
from gdbheap.machines.machine import X86_64, Machine
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.mappings import HUGE_PAGES, Mapping, Mappings
from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.unseen_files import UnseenFile
from gdbheap.text import IN_GDB

AT_PHDR = 3
# How what is found ends where memory is missing.
ABSENT = ("absent bytes", "where nothing is")
AT_PAGESZ = 6
AT_ENTRY = 9
AT_RANDOM = 25
AT_SYSINFO_EHDR = 33


@dataclass(frozen=True)
class Thread:
    """A thread when the target stood still. ``thread_pointer``: where the C library keeps its thread-local data;
    ``registers`` are the general ones as far as they are known, ``failed`` whether it was killed by a fault of its own,
    or aborts."""

    tid: int
    thread_pointer: int
    sp: int
    pc: int
    name: str = ""
    failed: bool = False
    registers: Sequence[int] = ()


@dataclass(frozen=True)
class Meanwhile:
    """By how many bytes RSS has grown (negative: shrunk) in the ``seconds`` since a process runs on."""

    rss: int
    seconds: float


@dataclass(frozen=True)
class Damage:
    """Something that is not as it must be: where, what was expected and what was found."""

    address: int
    what: str
    expected: str
    found: str
    transient: bool = False

    @property
    def is_absence(self) -> bool:
        """Whether memory is missing there, instead of being other than it must be."""
        return self.found.endswith(ABSENT)

    @classmethod
    def of(cls, found: _native.Damage, transient: bool = False) -> Damage:
        """What the native half found."""
        return cls(found.address, found.what, found.expected, found.found, transient)


class _Bases:
    """The bases of objects, for a search in the middle: a list of them would cost each search all objects."""

    def __init__(self, objects: Sequence[LoadedObject]) -> None:
        self._objects = objects

    def __len__(self) -> int:
        return len(self._objects)

    def __getitem__(self, index: int) -> int:
        return self._objects[index].base


@dataclass(eq=False)
class Target:
    """One address space at one moment; a process and a core fill it in.

    ``pages`` is None when residency is unknown. ``space`` raises ``Fault`` for what cannot be read. ``refusal`` is
    the reason why no memory at all can be read (mappings and residency are then still true), None otherwise.
    ``locked`` are the ranges that are locked into memory (mlock), as far as that is known.
    ``partial`` means that an answer may lack what was cut off (a truncated core, refused memory).
    ``missing`` are the ranges that a core should have and has not, because it is cut short; ``unseen`` the programs and
    libraries whose headers are nowhere: what is in their data cannot be found.
    ``modified``: when the file of a core was written last, in seconds since 1970; None where that is not known.
    ``words``: how a command line in a shell names it, where that is neither the process id nor the core's path.
    ``proc``: the folder below /proc of a process of this machine, by a path that leads to no other process.
    ``arguments``: of the command line the beginning, as far as the program left it there.
    ``remote``: memory comes through gdb from another machine, slowly.
    ``offered_in_gdb``: the nouns that can be typed where gdb holds it; None where it was named in a shell.
    """

    kind: str
    pid: int | None = None
    core: str | None = None
    exe: str | None = None
    arguments: Sequence[str] = ()
    proc: str | None = None
    machine: Machine = X86_64
    mappings: Mappings = field(default_factory=Mappings)
    pages: Pages | None = None
    space: Space = field(default_factory=lambda: Space.for_core(X86_64, [], []))
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
        """Return how RSS has changed since the target ran on; None where it has not, or that takes long."""
        return None

    @property
    def cut_short(self) -> str | None:
        """Why something of the answer may be missing although it was there; None where nothing is."""
        return None

    @property
    def unread_symbols(self) -> list[str]:
        """Return lines for symbols of its files that were not read."""
        rooms = {loaded.elf.room: None for loaded in self.objects if loaded.elf is not None}
        return [line for room in rooms for line in room.warnings()]

    @property
    def finishing(self) -> list[str]:
        """Return the options with which a command would read what this one had no time for."""
        return []

    def command_lines(self, noun: str, *options: str) -> list[str]:
        """Return the command about this target as a line to paste: in gdb, which holds it, one of gdb's commands, else
        one of a shell; none where it cannot be typed there."""
        if self.offered_in_gdb is not None:
            is_offered = noun.partition(" ")[0] in self.offered_in_gdb
            return [" ".join(filter(None, [IN_GDB, noun, *options]))] if is_offered else []
        where = self.words or (shlex.quote(self.core) if self.core else str(self.pid or ""))
        if self.remote or not where:
            return []
        return [" ".join(filter(None, ["gdbheap", noun, where, *options]))]

    @property
    def main_stack(self) -> Mapping | None:
        """The stack of the first thread: the kernel puts the 16 bytes of AT_RANDOM at its far end (execve(2))."""
        return self.mappings.find(self.auxv.get(AT_RANDOM, 0))

    @property
    def kept(self) -> Ranges:
        """Ranges where madvise() releases nothing that counts: locked memory, and hugetlbfs, which is not in RSS."""
        huge = [(mapping.start, mapping.end) for mapping in self.mappings if mapping.path == HUGE_PAGES]
        return joined(sorted(self.locked + huge))

    @property
    def huge_mapped(self) -> list[tuple[int, int, int]]:
        """(start, end, bytes in transparent huge pages) of the mappings that have some, as far as anybody says."""
        return []

    @property
    def lazily_freed(self) -> list[tuple[int, int, int]]:
        """Return (start, end, bytes given back by MADV_FREE) of mappings that have some; none where nobody knows."""
        return []

    @property
    def written(self) -> list[tuple[int, int, int]] | None:
        """Return (start, end, bytes in pages of no file) of mappings that have some; None where nobody knows."""
        return None

    def sharing(self, start: int, end: int) -> tuple[int, int] | None:
        """Of the whole resident pages in [start, end): bytes that this process alone maps, and bytes that others map
        too (after fork()); None where nobody knows."""
        return None

    def unseen_data(self) -> list[tuple[UnseenFile, Ranges]]:
        """Where the data of the files lie whose headers are nowhere, as far as their mappings tell: all that may not be
        run. What follows the last of them, their .bss, is anonymous memory."""
        paths: dict[str, Ranges] = {file.path: [] for file in self.unseen}
        for one in self.mappings:
            if one.path in paths and one.readable and not one.executable:
                paths[one.path].append((one.start, one.end))
        return [(file, joined(paths[file.path])) for file in self.unseen]

    @property
    def lacking(self) -> int:
        """Bytes that the program may have pointers in and that are not here, because a core is cut short."""
        return sum(end - start for start, end in self.missing)

    def object_of(self, address: int) -> LoadedObject | None:
        """The ELF object whose file mappings or .bss hold ``address``, or None."""
        index = bisect_right(_Bases(self.objects), address) - 1
        if index < 0 or not self.objects[index].contains(address):
            return None
        return self.objects[index]

    def describe(self) -> dict[str, Any]:
        """The part of the JSON key "target" that is known without any heap: what it is, and which one."""
        return {"kind": self.kind, "pid": self.pid, "core": self.core, "exe": self.exe, **vars(self.identity)}
