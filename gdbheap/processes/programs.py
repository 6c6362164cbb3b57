"""Find which program each process runs, and sum the memory of each program's processes, as ps_mem does.

Imports take most of the run time of ``gdbheap ps``. So this module imports only small modules, no regular expressions
and no dataclasses. The module ``accounts`` offers the same data as records, for all other callers.
"""

from __future__ import annotations

import os

from gdbheap._native import have_one_memory, process_accounts, walk_to_file
from gdbheap.processes import early_reading
from gdbheap.processes.early_reading import PROC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gdbheap._native import ProcessAccount, ProcessMemory

__all__ = ["Summed", "ProcessSums", "is_python", "name_of", "program_of", "read", "script_of", "summed"]

CUT_OFF = 512
DELETED = b" (deleted)"
# File systems that another user may serve, and the one that contains the folders of processes.
ASKING = (b"fuse", b"overlay", b"proc ")
DIGITS = "0123456789."
# Options of Python that take a value: the rest of the word, or the next word. Two of them end the options
# (Modules/main.c).
WITH_VALUE, LAST = "WXcm", "cm"
LONG_WITH_VALUE = "--check-hash-based-pycs"


class ProcessSums:
    """The sums over a program's processes, in bytes. Call ``add`` for each process, then ``end``."""

    heap = None

    def __init__(self, name: str = "", script: str | None = None) -> None:
        self.name, self.script = name, script
        self.private = self.shared = self.swapped = 0
        self.pids: list[int] = []
        self._shared_huge = 0
        self._fingerprints: set[int] = set()

    @property
    def ram(self) -> int:
        """The sum of the processes' proportional shares, in bytes."""
        return self.private + self.shared

    @property
    def count(self) -> int:
        return len(self.pids)

    def add(self, pid: int, memory: ProcessMemory) -> None:
        """Add a process with the kernel's figures of its memory. Call ``end`` after the last process."""
        self.pids.append(pid)
        self._fingerprints.add(memory.fingerprint)
        share = memory.pss + CUT_OFF * memory.proportional - memory.private if memory.proportional else memory.shared
        self.private += memory.private + memory.private_huge
        self.shared += share
        self._shared_huge = max(self._shared_huge, memory.shared_huge)
        self.swapped += memory.swap if memory.swap_share is None else memory.swap_share

    def end(self) -> None:
        """Complete the sums after the last ``add``: memory that all processes share is counted once."""
        # Processes with identical figures may share one address space (clone(2), CLONE_VM), or be forks that have
        # written to equally many pages.
        if len(self._fingerprints) == 1 and len(self.pids) > 1 and have_one_memory(self.pids):
            self.private, self.shared = self.private // len(self.pids), self.shared // len(self.pids)
        self.shared += self._shared_huge


class Summed:
    """The programs that have any memory, largest first.

    ``total``: the sums over all of them.
    ``refused``: the number of processes that may not be read.
    """

    left_out = ()

    def __init__(self, found: Iterable[ProcessSums], refused: int) -> None:
        self.rows: list[ProcessSums] = []
        self.total = ProcessSums()
        self.refused = refused
        for one in found:
            one.end()
            self.total.private += one.private
            self.total.shared += one.shared
            self.total.swapped += one.swapped
            if one.ram:
                self.rows.append(one)
        self.rows.sort(key=lambda program: -program.ram)


def read(pids: Sequence[int] | None = None, proc: str = PROC) -> list[ProcessAccount]:
    """Return the kernel's figures of the processes ``pids``, or of all processes but this one, ordered by process id.

    Raises OSError."""
    if pids is not None:
        return process_accounts(proc, list(pids))
    known = early_reading.take() if proc == PROC else None
    rows, own = process_accounts(proc) if known is None else known, os.getpid()
    return [row for row in rows if row.pid != own]


def summed(rows: Iterable[ProcessAccount], is_meant: Callable[[str], object] | None = None) -> Summed:
    """Return the programs with their sums.

    ``is_meant``: a test of a program's name or script. If it is given, programs that do not pass it are left out.
    """
    rows = list(rows)
    programs = {row.pid: program_of(row) for row in rows if row.memory is not None}
    sums: dict[tuple[str, str | None], ProcessSums] = {}
    for row in rows:
        if row.memory is not None:
            key = name_of(row, programs), script_of(row, programs[row.pid])
            if is_meant is None or any(is_meant(word) for word in key if word):
                if key not in sums:
                    sums[key] = ProcessSums(*key)
                sums[key].add(row.pid, row.memory)
    return Summed(sums.values(), sum(row.memory is None for row in rows))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _words(row: ProcessAccount) -> list[str]:
    return _text(row.command).rstrip("\0").split("\0")


def program_of(row: ProcessAccount) -> str:
    """Return the file name of a process's program, with " [deleted]" or " [updated]" if it was deleted or replaced."""
    path = row.exe.partition(b"\0")[0]
    if not path.endswith(DELETED):
        return os.path.basename(_text(path))
    path = path[: -len(DELETED)]
    first = row.command.partition(b"\0")[0]
    if _is_there(path):
        return os.path.basename(_text(path) + " [updated]")
    if first.startswith(b"/") and _is_there(first):
        return os.path.basename(_text(first) + " [updated]")
    return os.path.basename(_text(path) + " [deleted]")


def _is_there(path: bytes) -> bool:
    """Return whether a path that comes from a process exists.

    False if it is on a file system that another user may serve, because that user could delay the answer.
    ``FileSystems`` has the full rule, but importing it takes long.
    """
    try:
        held = walk_to_file("/", os.fsdecode(path), _answered(), False)
    except (OSError, ValueError):
        return False
    os.close(held.descriptor)
    return True


def _answered() -> set[int]:
    """Return the ids of the mounts whose file system cannot be served by a user's program."""
    found = set()
    with open(f"{PROC}/self/mountinfo", "rb") as stream:
        for line in stream:
            place, _, kind = line.partition(b" - ")
            if not kind.startswith(ASKING):
                found.add(int(place.split()[0]))
    return found


def name_of(row: ProcessAccount, programs: dict[int, str]) -> str:
    """Return the name that ps_mem gives a process.

    The result is the program's name, unless the process has another name and its parent runs another program.
    """
    program, name = programs[row.pid], _text(row.name)
    return program if program.startswith(name) or programs.get(row.parent) == program else name


def is_python(name: str) -> bool:
    """Return whether a name is the name of a Python interpreter: python, python3.11, python3d, pypy3.10."""
    if name.startswith("pypy"):
        return not name[len("pypy") :].strip(DIGITS)
    letter = name[len("python") :].lstrip(DIGITS)
    return name.startswith("python") and (not letter or (len(letter) == 1 and "a" <= letter <= "z"))


def script_of(row: ProcessAccount, program: str) -> str | None:
    """Return the script that a Python process runs; None for other programs, and for a Python without one."""
    if not is_python(program.partition(" ")[0]):
        return None
    words = _words(row)
    if words and not is_python(os.path.basename(words[0])) and (" " in words[0] or len(words) == 1):
        # The process renamed itself, as gunicorn's workers do with setproctitle.
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
