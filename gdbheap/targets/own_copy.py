"""The copy that a program made of itself, as a target.

The copy's memory is read through a descriptor that the copy opened, everything else from ``/proc``. The program itself
runs on. Memory, mappings and private pages are read from the copy, as they were at the fork. The copy lacks pages of
files and of shared memory. The residency of these pages is therefore read from the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from gdbheap._native import Pages, Room
from gdbheap.errors import NoTarget
from gdbheap.host import headroom, procfs
from gdbheap.host.identity import identify
from gdbheap.host.procfs import ProcessFolder, Rss
from gdbheap.targets.mappings import Mapping, parse_flagged, parse_locked, parse_maps
from gdbheap.targets.process import SPARE_BYTES, Preparation, Process, Registers, ranges_to_copy
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.target import AT_PAGESZ

__all__ = ["OwnCopy", "ThreadId"]

SOURCE = "pages of a copy"
NO_REGISTERS = (
    "the program read itself from inside, so registers and stack pointers are unknown: all words of each thread's stack"
    " count as in use, and no stack of C functions can be unwound"
)
NOT_RESIDENT = (
    "it is unknown which pages of files and of shared memory are resident: the program is not dumpable, so its files in"
    " /proc cannot be read, and fork() does not copy these pages"
)


class ThreadId(NamedTuple):
    """A Python thread.

    ``tid``: its id in the kernel, 0 if unknown.
    ``pointer``: its thread pointer.
    """

    tid: int
    pointer: int


class OwnCopy(Process):
    """A copy that a program made of itself. Raises NoTarget, NotPermitted, OSError.

    ``memory``: an open descriptor of the copy's memory.
    ``threads``: the Python threads that the program knew. Their registers are unknown.
    """

    def __init__(
        self, copy: ProcessFolder, program: ProcessFolder, memory: int, threads: Sequence[ThreadId] = ()
    ) -> None:
        ready = Preparation(copy)
        ready.identity = identify(lambda path: _read(program, path), program.pid)
        ready.thread_names = {tid: program.thread_name(tid) for tid in _tasks(program)}
        ready.load_files()
        self._program, self._memory = program, memory
        standing = [Registers(tid, pointer, 0, 0, ()) for tid, pointer in threads]
        self._unread: list[str] = [NO_REGISTERS]
        super().__init__(copy, standing, ready, books_read=lambda process: self._wiped())
        self._copy_at_once()
        self.pid = program.pid
        self.warnings += self._unread
        with suppress(OSError):
            program.read("maps", 1)
            self.proc = program.place

    def _read_books(self) -> None:
        self.mappings = parse_maps(self._folder.read("maps", procfs.TABLE_LIMIT))
        if not len(self.mappings):
            raise NoTarget("the copy has ended, because memory ran out or the program ended")
        with suppress(OSError):
            self.auxv = procfs.parse_auxv(self.machine, self._folder.read("auxv"))
        ranges = [(mapping.start, mapping.end) for mapping in self.mappings]
        self.machine = self.machine.of_program(self.auxv.get(AT_PAGESZ), ranges)
        self.rss = self._read_rss()
        self.pages = self._merged()
        self.rss = self._sums()
        with suppress(OSError):
            if procfs.kib(self._program.status().get("VmLck")):
                self.locked = parse_locked(self._program.read("smaps", procfs.TABLE_LIMIT))
        self.threads = [self._thread(registers) for registers in self._standing]

    def _copy_at_once(self) -> None:
        """Copy all private memory into gdbheap if enough memory is free for it, because many small reads will
        follow."""
        assert self.pages is not None
        ranges, _shared = ranges_to_copy(self._readable)
        counts = [self.pages.count(start, end) for start, end in ranges]
        size = sum(count.resident + count.swapped for count in counts) + SPARE_BYTES
        if headroom.copy_fits(size):
            with suppress(OSError):
                self.space.capture(ranges, Room(size), [], "")

    def _merged(self) -> Pages:
        """Return the residency of the copy's private memory, merged with the program's residency of files and shared
        memory.
        """
        mine = [mapping for mapping in self.mappings if mapping.private and mapping.anonymous]
        others = [mapping for mapping in self.mappings if not (mapping.private and mapping.anonymous)]
        own = self._find_pages(self._folder.path("pagemap"), self._ranges([*mine, *others]))
        try:
            found = self._find_pages(self._program.path("pagemap"), self._ranges(others))
        except OSError:
            self._unread.append(NOT_RESIDENT)
            return own
        runs = [(run.start, run.end, run.state) for start, end in self._ranges(mine) for run in own.runs(start, end)]
        runs += [
            (run.start, run.end, run.state) for start, end in self._ranges(others) for run in found.runs(start, end)
        ]
        return Pages.from_runs(self.machine, sorted(runs))

    def _ranges(self, mappings: Iterable[Mapping]) -> Ranges:
        return sorted((mapping.start, mapping.end) for mapping in mappings)

    def _sums(self) -> Rss:
        """Return the resident and swapped bytes, counted from the pages."""
        assert self.pages is not None
        counts = [self.pages.count(start, end) for start, end in self._ranges(self.mappings)]
        resident, swapped = sum(count.resident for count in counts), sum(count.swapped for count in counts)
        known = self.rss
        return Rss(resident, swapped, SOURCE, anonymous=known.anonymous, huge=known.huge, lazy=known.lazy)

    def _wiped(self) -> Ranges:
        """Return the ranges that are empty in the copy because the program asked for that (MADV_WIPEONFORK), and warn
        of them.

        The warning also counts memory that was not copied at all (MADV_DONTFORK).
        """
        wiped: Ranges = []
        with suppress(OSError):
            wiped = list(parse_flagged(self._folder.read("smaps", procfs.TABLE_LIMIT), b"wf"))
        left_out = list(wiped)
        with suppress(OSError):
            left_out += parse_flagged(self._program.read("smaps", procfs.TABLE_LIMIT), b"dc")
        if left_out:
            self.partial = True
            size = sum(end - start for start, end in left_out)
            self._unread.append(
                f"{size:,} bytes in {len(left_out)} ranges are not in the copy (MADV_DONTFORK, MADV_WIPEONFORK):"
                " their contents are missing"
            )
        return wiped

    def sharing(self, start: int, end: int) -> tuple[int, int] | None:
        """Return None, because the copy shares all its pages with the program."""
        return None


def _read(program: ProcessFolder, path: str) -> bytes:
    """Return the contents of a file: below the program's folder in /proc, or elsewhere. Raises OSError."""
    own = f"{procfs.PROC}/{program.pid}/"
    if path.startswith(own):
        return program.read(path[len(own) :])
    with open(path, "rb") as stream:
        return stream.read(procfs.TEXT_LIMIT)


def _tasks(program: ProcessFolder) -> list[int]:
    with suppress(OSError):
        return program.tasks()
    return []
