"""What the kernel says of the memory of many processes, by program: what ps_mem, psm and smem print.

RAM is the proportional share (PSS) of each process, half a KiB more for each sum that the kernel cut to whole KiB, as
ps_mem counts, and pages of hugetlbfs, which are in no PSS."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gdbheap._native import ProcessAccount, ProcessMemory, process_accounts
from gdbheap.processes import ahead
from gdbheap.processes.ahead import PROC

__all__ = ["HeapSums", "Program", "ProgramSums", "Table", "by_program", "program_of", "read", "script_of"]

CUT_OFF = 512
DELETED = b" (deleted)"
PYTHON = re.compile(r"python[0-9.]*[a-z]?|pypy[0-9.]*")
# Options of Python whose value is the next word unless it follows at once; two of these end the options
# (Modules/main.c).
WITH_VALUE, LAST = "WXcm", "cm"
LONG_WITH_VALUE = "--check-hash-based-pycs"


@dataclass(frozen=True)
class HeapSums:
    """Of the heaps of a program's processes, in bytes: resident in use, resident and free, and what malloc_trim(0)
    would give back of that. ``looked``: in how many of them; the others could not be looked into."""

    looked: int
    in_use: int
    free: int
    trim: int


@dataclass(frozen=True)
class ProgramSums:
    """Bytes: all of it, what its processes have for themselves, their part of what is shared, and swapped."""

    ram: int
    private: int
    shared: int
    swapped: int


@dataclass(frozen=True)
class Program(ProgramSums):
    """The processes that run a program, a Python program by its script (``script``: its file, ``-m`` and the module,
    ``-c``, or what the process calls itself; None for others)."""

    name: str
    script: str | None
    count: int
    pids: list[int]
    heap: HeapSums | None = None


@dataclass(frozen=True)
class Table:
    """The programs, and the sums over all. ``refused``: how many processes are not to be read."""

    programs: list[Program]
    total: ProgramSums
    refused: int


@dataclass
class _Sums:
    """A program while its processes are added up, as ps_mem does."""

    private: int = 0
    shared: int = 0
    shared_huge: int = 0
    swapped: int = 0
    pids: list[int] = field(default_factory=list)
    fingerprints: set[int] = field(default_factory=set)

    def add(self, pid: int, memory: ProcessMemory) -> None:
        self.pids.append(pid)
        self.fingerprints.add(memory.fingerprint)
        share = memory.pss + CUT_OFF * memory.proportional - memory.private if memory.proportional else memory.shared
        self.private += memory.private + memory.private_huge
        self.shared += share
        self.shared_huge = max(self.shared_huge, memory.shared_huge)
        self.swapped += memory.swap if memory.swap_share is None else memory.swap_share

    def sums(self) -> ProgramSums:
        private, shared = self.private, self.shared
        # The very same figures of all: they have one address space together (clone(2), CLONE_VM).
        if len(self.fingerprints) == 1 and len(self.pids) > 1:
            private, shared = private // len(self.pids), shared // len(self.pids)
        shared += self.shared_huge
        return ProgramSums(private + shared, private, shared, self.swapped)


def read(pids: Sequence[int] | None = None, proc: str = PROC) -> list[ProcessAccount]:
    """What the kernel says of these processes, or of all but ourselves; by pid. Raises OSError."""
    if pids is not None:
        return process_accounts(proc, list(pids))
    known = ahead.take() if proc == PROC else None
    rows, own = process_accounts(proc) if known is None else known, os.getpid()
    return [row for row in rows if row.pid != own]


def by_program(rows: Iterable[ProcessAccount], pattern: re.Pattern[str] | None = None) -> Table:
    """The programs whose name, or script, has a match of ``pattern`` in it, the largest first."""
    rows = list(rows)
    programs = {row.pid: program_of(row) for row in rows if row.memory is not None}
    sums: dict[tuple[str, str | None], _Sums] = {}
    for row in rows:
        if row.memory is not None:
            key = name_of(row, programs), script_of(row, programs[row.pid])
            if pattern is None or any(pattern.search(word) for word in key if word):
                sums.setdefault(key, _Sums()).add(row.pid, row.memory)
    found = [_program(key, one) for key, one in sums.items()]
    found.sort(key=lambda program: -program.ram)
    refused = sum(row.memory is None for row in rows)
    return Table([program for program in found if program.ram], total_of(found), refused)


def total_of(programs: Iterable[ProgramSums]) -> ProgramSums:
    """All of them together."""
    rows = list(programs)
    names = ("ram", "private", "shared", "swapped")
    return ProgramSums(*(sum(getattr(row, name) for row in rows) for name in names))


def _program(key: tuple[str, str | None], one: _Sums) -> Program:
    sums = one.sums()
    return Program(sums.ram, sums.private, sums.shared, sums.swapped, *key, len(one.pids), one.pids)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _words(row: ProcessAccount) -> list[str]:
    return _text(row.command).rstrip("\0").split("\0")


def program_of(row: ProcessAccount) -> str:
    """The file name of the program; one that was deleted, or replaced, says so."""
    path = row.exe.partition(b"\0")[0]
    if not path.endswith(DELETED):
        return os.path.basename(_text(path))
    path = path[: -len(DELETED)]
    first = row.command.partition(b"\0")[0]
    if os.path.exists(path):
        return os.path.basename(_text(path) + " [updated]")
    if first and os.path.exists(first):
        return os.path.basename(_text(first) + " [updated]")
    return os.path.basename(_text(path) + " [deleted]")


def name_of(row: ProcessAccount, programs: dict[int, str]) -> str:
    """As ps_mem names a process: the program, unless the process has another name and its parent another program."""
    program, name = programs[row.pid], _text(row.name)
    return program if program.startswith(name) or programs.get(row.parent) == program else name


def script_of(row: ProcessAccount, program: str) -> str | None:
    """What a Python runs; None for other programs, and for one that runs no script."""
    if not PYTHON.fullmatch(program.partition(" ")[0]):
        return None
    words = _words(row)
    if words and not PYTHON.fullmatch(os.path.basename(words[0])) and (" " in words[0] or len(words) == 1):
        # It calls itself something else, as gunicorn's workers do with setproctitle.
        return words[0] or None
    rest = iter(words[1:])
    for word in rest:
        if word == LONG_WITH_VALUE:
            next(rest, None)
        elif word == "-" or not word.startswith("-"):
            return os.path.basename(word) or None
        elif not word.startswith("--"):
            letter = next((letter for letter in word[1:] if letter in WITH_VALUE), "")
            value = word.partition(letter)[2] if letter else ""
            value = next(rest, "") if letter and not value else value
            if letter in LAST and letter:
                return f"-m {value}" if letter == "m" else "-c"
    return None
