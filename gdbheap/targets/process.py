"""A live process as a target, through ``/proc/PID``.

``Process`` only reads and stops nothing; in gdb the process is stopped already. In the shell, the context manager
``stopped`` stops all threads. At the end of its block it releases the threads in every case. Absent pages are never
read from the process, because the kernel would allocate them.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from gdbheap._native import Descriptor, Frozen, Pages, Room, Space, Stop, ThreadState
from gdbheap.errors import CallEnded, GdbheapError, NoTarget, NotPermitted, one_line
from gdbheap.host import headroom, procfs
from gdbheap.host.file_systems import FileSystems
from gdbheap.host.identity import identify
from gdbheap.host.mounts import device_name
from gdbheap.host.procfs import Named, ProcessFolder, Rss
from gdbheap.host.program_name import program_name
from gdbheap.refusals import refusal
from gdbheap.targets import stopping
from gdbheap.targets.elf import ElfFiles, find_objects
from gdbheap.targets.held_files import HeldFiles
from gdbheap.targets.mappings import (
    Mapping,
    parse_huge,
    parse_lazy,
    parse_locked,
    parse_maps,
    parse_smaps,
    parse_written,
)
from gdbheap.targets.ranges import Ranges, subtract
from gdbheap.targets.target import AT_PAGESZ, Meanwhile, Target, Thread

PRIVATE_ANONYMOUS, PRIVATE_FILE, FROM_PROCESS, FROM_FILE, PRESENT = 0, 1, 2, 3, 4
SPARE_BYTES = 16 << 20
# A stop limit, in seconds, that should not end any answer early.
LONGER_STOP = 60
# Shared memory up to this size is copied too; it gets half of the spare bytes.
MAX_SHARED_COPY = SPARE_BYTES // 2
UNCOLLECTED = (
    "the ended copy could not be reaped: until the process ends, it stays a zombie (a process id without memory)"
)
LEFT = "the copy is still ending (it is large, or a file system delays it); gdbheap's helper process {} ends after it"
NO_SCAN = (errno.ENOTTY, errno.EINVAL, errno.ENOSYS)
MAX_PAGEMAP = 4 << 30
# The largest RSS that the kernel sums again within some tens of milliseconds.
MAX_SUMMED = 8 << 30
MAX_SHARING = 1 << 30
DELETED = " (deleted)"
ARGUMENTS_BYTES = 4 << 10
# The index of a missing file: its pages are absent.
NO_FILE = (1 << 31) - 1
# The most files named as in SYMBOL_FILES whose symbols are read early. A process has one or two of them; a process that
# maps more may only want to make gdbheap read them.
MAX_SYMBOL_FILES = 8
SYMBOL_FILES = ("libc.so", "libc-", "libpython")
UNREADABLE = "[vvar"


class Registers(NamedTuple):
    """The registers of a stopped thread, if they do not come from the native code but, for example, from gdb."""

    tid: int
    thread_pointer: int
    stack_pointer: int
    program_counter: int
    general: Sequence[int]


class MappingRow(NamedTuple):
    """A rule for reading the bytes [start, end) with ``Space.for_process``.

    ``kind``: one of the constants PRIVATE_ANONYMOUS to PRESENT above.
    ``file``: the index of a file, -1 for none.
    ``offset``: where the range begins in the file.
    """

    start: int
    end: int
    kind: int
    file: int
    offset: int


def _rollup(folder: ProcessFolder) -> Rss | None:
    """Return the sums of ``smaps_rollup``, with resident shared memory, which only ``status`` has. Raises OSError."""
    found = procfs.parse_rollup(folder.read("smaps_rollup"))
    return found and replace(found, shmem=procfs.kib(folder.status().get("RssShmem")))


class Preparation:
    """The data of a process that can be read while it still runs: build-ids and symbols of its files, names of its
    threads.

    ``sums``: the kernel's totals of its resident memory, if ``add_up`` was called. They are used only if the pages that
    are read later have the same totals.

    Raises NoTarget, NotPermitted or Unsupported for a process that can never be read.
    """

    def __init__(self, process: Named) -> None:
        self.folder = refusal.open_folder(process)
        self.machine = refusal.check(self.folder)
        self.systems = FileSystems(self.folder)
        self.files = ElfFiles(self.systems)
        self.sums: Rss | None = None
        self._with_symbols: set[int] = set()
        self.exe = executable(self.folder)
        self.arguments = command_line(self.folder)
        self.identity = identify(self._read, self.folder.pid)
        self.thread_names = {tid: self.folder.thread_name(tid) for tid in _quiet_tasks(self.folder)}

    def _read(self, path: str) -> bytes:
        """Return the contents of a file: below the process's folder in /proc, or elsewhere. Raises OSError."""
        own = f"/proc/{self.folder.pid}/"
        if path.startswith(own):
            return self.folder.read(path[len(own) :])
        with open(path, "rb") as stream:
            return stream.read(procfs.TEXT_LIMIT)

    def add_up(self) -> None:
        """Read ``sums``, for which the kernel walks all pages (20 ms per GiB), before the process is stopped.

        If the process's memory hardly changes afterwards, the kernel need not walk the pages again during the stop.
        """
        with suppress(OSError):
            self.sums = _rollup(self.folder)

    def renew(self) -> bool:
        """Read the command line again, which a program may change. Return whether the process still runs the same
        program; if not, the preparation must not be used.
        """
        self.arguments = command_line(self.folder)
        return executable(self.folder) == self.exe

    def load_files(self) -> None:
        """Open the ELF files that the process maps now, and read symbols of its program, libc and libpython."""
        with suppress(OSError):
            for mapping in parse_maps(self.folder.read("maps", procfs.TABLE_LIMIT)):
                if mapping.offset == 0 and mapping.path.startswith("/") and mapping.readable:
                    self._load(mapping)

    def _load(self, mapping: Mapping) -> None:
        wanted = mapping.path == self.exe or os.path.basename(mapping.path).startswith(SYMBOL_FILES)
        for path in elf_candidates(self.folder, self.systems, self.exe, mapping):
            file = self.files.get(path)
            if file is not None:
                if wanted and id(file) not in self._with_symbols and len(self._with_symbols) < MAX_SYMBOL_FILES:
                    self._with_symbols.add(id(file))
                    file.load_symbols()
                return


class Process(Target):
    """A live process, as it is now. Its data is consistent only if it is stopped while it is read.

    ``threads``: the registers of the stopped threads.
    ``memory_refused``: the reason why no memory is read. Mappings and residency are read in any case.
    ``holder``: gdbheap's stop or copy of the process. After a stop has ended, nothing more is read.
    ``memory_of``: the copy whose memory is read instead. The copy shares all pages, so it is unknown which other
    processes share them.
    ``books_read``: called right after ``/proc`` was read. The ranges that it returns count as absent.
    ``room``: a buffer in gdbheap for a copy of the private memory. If the copy fits, the process is released early.

    Raises NoTarget, NotPermitted, OSError.
    """

    # A descriptor of the process's memory, if one is open already.
    _memory: int | None = None

    def __init__(
        self,
        process: Named,
        threads: Iterable[Registers | ThreadState] = (),
        preparation: Preparation | None = None,
        memory_refused: GdbheapError | None = None,
        holder: Stop | Frozen | None = None,
        memory_of: Frozen | None = None,
        books_read: Callable[[Process], Ranges] = lambda process: [],
        room: Room | None = None,
    ) -> None:
        self._ready = preparation or Preparation(process)
        self._folder = self._ready.folder
        super().__init__("process", pid=self._folder.pid, proc=self._folder.place)
        self._holder = holder
        self._has_copy = memory_of is not None
        self._systems = self._ready.systems
        self._readable: list[Mapping] = []
        self.is_copied = False
        self._runs_since: float | None = None
        self._standing = list(threads)
        self.exe, self.identity, self.machine = self._ready.exe, self._ready.identity, self._ready.machine
        self.arguments = self._ready.arguments
        self.refusal = memory_refused
        self._read_books()
        self._open_space(memory_of or self._folder, books_read(self))
        self._capture(room)
        self.objects = find_objects(self.machine, self.mappings, self.space, self._ready.files, self._candidates)
        if self.rss.swap and self.refusal is None:
            self.warnings.append(
                f"{self.rss.swap:,} bytes are swapped out: gdbheap brings them back into memory by reading them"
            )
        self._tell_unstopped()
        self.warnings += self._systems.warnings

    def _read_books(self) -> None:
        """Read all data from ``/proc`` that must belong to the same moment: mappings, RSS, residency and threads.

        Raises NoTarget if the process has no memory any more.
        """
        self.mappings = parse_maps(self._folder.read("maps", procfs.TABLE_LIMIT))
        if not len(self.mappings):
            raise NoTarget(
                f"process {self.pid} has no memory any more, because it is ending: give its core, if it leaves a core"
            )
        with suppress(OSError):
            self.auxv = procfs.parse_auxv(self.machine, self._folder.read("auxv"))
        ranges = [(mapping.start, mapping.end) for mapping in self.mappings]
        self.machine = self.machine.of_program(self.auxv.get(AT_PAGESZ), ranges)
        self.rss = self._ready.sums or self._read_rss()
        self._read_pages()
        self._read_locked()
        self.threads = [self._thread(registers) for registers in self._standing]

    def _capture(self, room: Room | None) -> None:
        """Copy the private memory and small shared mappings, if they fit into ``room``.

        Then release the process or end its copy. Memory without pointers may be left out, with a warning.
        """
        holder = self._holder
        if room is None or holder is None or self.refusal is not None:
            return
        copied, shared = ranges_to_copy(self._readable)
        self.is_copied = self.space.capture(copied, room, shared, self._folder.path("mem"))
        if self.is_copied and isinstance(holder, Stop):
            holder.release()
            self._runs_since = time.monotonic()
            self.stopped_seconds = holder.seconds
        elif self.is_copied and isinstance(holder, Frozen):
            self.warnings += end_copy(holder)
        if self.space.left_out:
            self.warnings.append(
                f"{self.space.left_out:,} bytes without pointers did not fit into the copy of the process, so"
                " damage is not listed: --clone reads them, too"
            )

    @property
    def cut_short(self) -> str | None:
        """The reason why the answer lacks data; None if it lacks none.

        Data is missing if the process was released, or the copy was killed, before everything was read.
        """
        holder = self._holder
        if holder is not None and self.is_copied and self.space.is_shared_lost:
            return "the process ended before its shared memory was read: references through shared memory are missing"
        if holder is None or not holder.missed:
            return None
        if isinstance(holder, Frozen):
            return (
                "the copy was killed while it was read (perhaps memory ran out): the answer lacks what had"
                " not been read by then, and lists no damage"
            )
        if not holder.expired:
            return None
        return (
            f"the process was released after {holder.seconds or 0:.1f} s (--max-stop): the answer lacks what had not "
            "been read by then, and lists no damage"
        )

    @property
    def finishing(self) -> list[str]:
        """The options that give a command more time to read; empty unless the stop limit expired."""
        holder = self._holder
        if not isinstance(holder, Stop) or not holder.expired:
            return []
        return ["--clone", f"--max-stop={max(LONGER_STOP, int(10 * (holder.seconds or 0)))}"]

    def _tell_unstopped(self) -> None:
        unstopped = self._holder.unstopped if self._holder else []
        if unstopped:
            self.warnings.append(
                f"{about_unstopped(unstopped)}: the registers there are unknown, and gdbheap may have read data while "
                "it was being written"
            )

    @property
    def folder(self) -> ProcessFolder:
        """The process's folder in ``/proc``, held open since the user named the process."""
        return self._folder

    @property
    def tracer(self) -> Stop | None:
        """The native object that keeps the process's threads stopped; None if they are not stopped."""
        return self._holder if isinstance(self._holder, Stop) else None

    def again(self) -> Process:
        """Return the process as it is now, after a call into it. Its threads are at the same instructions as before the
        call.
        """
        return Process(self._folder, self._standing, self._ready, self.refusal, self._holder)

    def meanwhile(self) -> Meanwhile | None:
        """Return the change of RSS since the memory was copied and the process released.

        None if it is unknown, or if RSS is so large that summing it would take long.
        """
        if self._runs_since is None or not 0 < (self.rss.bytes or 0) <= MAX_SUMMED:
            return None
        with suppress(OSError):
            now = self._read_rss()
            if now.bytes is not None and now.source == self.rss.source:
                return Meanwhile(now.bytes - (self.rss.bytes or 0), time.monotonic() - self._runs_since)
        return None

    def _read_rss(self) -> Rss:
        """Return RSS from ``smaps_rollup`` (Linux 4.14). Without this file, return the sum over ``smaps``, or RSS from
        ``status``.
        """
        with suppress(OSError):
            found = _rollup(self._folder)
            if found is not None:
                return replace(found, proportional=None) if self._has_copy else found
        self._read_smaps()
        sizes = [(mapping.rss, mapping.swap) for mapping in self.mappings if mapping.rss is not None]
        if sizes:
            return Rss(sum(rss or 0 for rss, _ in sizes), sum(swap or 0 for _, swap in sizes), "smaps")
        with suppress(OSError):
            fields = self._folder.status()
            rss, swap, anonymous = (procfs.kib(fields.get(name)) for name in ("VmRSS", "VmSwap", "RssAnon"))
            shmem = procfs.kib(fields.get("RssShmem"))
            return Rss(rss, swap, "status", anonymous=anonymous, shmem=shmem)
        return Rss(None, None, "unknown")

    def _read_locked(self) -> None:
        with suppress(OSError):
            if procfs.kib(self._folder.status().get("VmLck")):
                self.locked = parse_locked(self._folder.read("smaps", procfs.TABLE_LIMIT))

    @cached_property
    def huge_mapped(self) -> list[tuple[int, int, int]]:
        if self.rss.huge:
            with suppress(OSError):
                return parse_huge(self._folder.read("smaps", procfs.TABLE_LIMIT))
        return []

    @cached_property
    def lazily_freed(self) -> list[tuple[int, int, int]]:
        if self.rss.lazy:
            with suppress(OSError):
                return parse_lazy(self._folder.read("smaps", procfs.TABLE_LIMIT))
        return []

    @cached_property
    def written(self) -> list[tuple[int, int, int]] | None:
        with suppress(OSError):
            return parse_written(self._folder.read("smaps", procfs.TABLE_LIMIT))
        return None

    def _read_smaps(self) -> None:
        """Read the figures of each mapping, only if needed: the kernel walks all pages, 35 ms per GiB."""
        with suppress(OSError):
            self.mappings = parse_smaps(self._folder.read("smaps", procfs.TABLE_LIMIT))

    def _read_pages(self) -> None:
        path = self._folder.path("pagemap")
        ranges = self.mappings.ranges()
        try:
            self.pages = self._find_pages(path, ranges)
        except TimeoutError:
            raise
        except OSError as error:
            reason = one_line(error.strerror or error)
            unknown = "it is unknown which pages are resident or reclaimable"
            self.warnings.append(f"{procfs.as_shown(path, self.pid)} cannot be read ({reason}): {unknown}")
            self.rss = self._read_rss()
            self._read_smaps()
            return
        counts = [self.pages.count(start, end) for start, end in ranges]
        resident, swapped = sum(count.resident for count in counts), sum(count.swapped for count in counts)
        if self._ready.sums is not None and (resident, swapped) != (self.rss.bytes, self.rss.swap):
            # The process changed its memory during the read.
            self.rss = self._read_rss()
        if resident != self.rss.bytes:
            self._compare_pages(self.pages)

    def _find_pages(self, path: str, ranges: Ranges) -> Pages:
        """Return the residency of ``ranges``.

        Since Linux 6.7 the kernel lists runs of pages (PAGEMAP_SCAN). Before, each page has an entry, so untouched
        memory is left out.
        """
        try:
            return Pages.from_pagemap(self.machine, path, ranges)
        except OSError as error:
            if error.errno not in NO_SCAN:
                raise
        return Pages.from_pagemap(self.machine, path, self._touched(ranges), False)

    def _touched(self, ranges: Ranges) -> Ranges:
        """Return ``ranges``. If they are large, leave out reserved address space that was never touched.

        Reading it would take long: a terabyte of address space has 2 GiB of pagemap entries.
        """
        if sum(end - start for start, end in ranges) - (self.rss.bytes or 0) <= MAX_PAGEMAP:
            return ranges
        self._read_smaps()
        return subtract(ranges, [(mapping.start, mapping.end) for mapping in self.mappings if mapping.untouched])

    def _compare_pages(self, pages: Pages) -> None:
        """Warn if ``pagemap`` and ``smaps`` disagree, as they do for device memory, which Rss does not include."""
        self._read_smaps()
        differences = [
            pages.count(mapping.start, mapping.end).resident - mapping.rss
            for mapping in self.mappings
            if mapping.rss is not None
        ]
        differing = [difference for difference in differences if difference]
        if differing:
            self.warnings.append(
                f"pagemap and smaps differ in {len(differing)} of {len(differences)} mappings,"
                f" by {sum(differing):+,} bytes in all: gdbheap counts pages by pagemap"
            )

    def _open_space(self, memory: ProcessFolder | Frozen, missing: Ranges) -> None:
        if self.refusal is not None:
            self.partial = True
            self.warnings.append(f"gdbheap could read only mappings and their pages, no memory: {self.refusal}")
            return
        files = MappedFiles(self._folder, self._systems)
        self._readable = [one for one in self.mappings if is_readable(one) and self._is_answered(one, files)]
        rows = [row for mapping in self._readable for row in self._rows(mapping, files, missing)]
        stop = self._holder if isinstance(self._holder, Stop) else None
        # A copy shares all its pages with the process.
        shared = self.rss.shared or self._has_copy
        self.space = Space.for_process(self.machine, memory, rows, self.pages, files.paths, shared, stop, self._memory)

    def _rows(self, mapping: Mapping, files: MappedFiles, missing: Ranges) -> Iterator[MappingRow]:
        """Yield rows for ``Space.for_process`` that say how to read the bytes of a mapping."""
        kind, index = PRESENT, -1
        if mapping.private and (mapping.anonymous or mapping.path == "/dev/zero"):
            kind = PRESENT if mapping.path == "[vdso]" else PRIVATE_ANONYMOUS
        elif mapping.private:
            kind, index = PRIVATE_FILE, files.index(mapping)
            if index < 0 and not self._systems.is_answered(mapping.device):
                # Pages that the program has not written are not read, as the file's server may never answer.
                index = NO_FILE
        elif not mapping.writable and (index := files.index(mapping)) >= 0:
            kind = FROM_FILE
        for start, end in subtract([(mapping.start, mapping.end)], missing):
            yield MappingRow(start, end, kind, index, mapping.offset + start - mapping.start)

    def _is_answered(self, mapping: Mapping, files: MappedFiles) -> bool:
        """Return whether reading a mapping is sure to end: no other user's program has to answer.

        This is true for private mappings. Of these, only pages that the process wrote are read through the process.
        """
        if mapping.private or not mapping.inode:
            return True
        answered = self._systems.is_answered(mapping.device)
        return files.index(mapping) >= 0 if answered is None else answered

    def _thread(self, found: Registers | ThreadState) -> Thread:
        name = self._ready.thread_names.get(found.tid)
        known = self._folder.thread_name(found.tid) if name is None else name
        return thread_of(found, known)

    def sharing(self, start: int, end: int) -> tuple[int, int] | None:
        """Return (bytes of pages that only this process maps, bytes of pages that other processes map too).

        The source is ``pagemap``. Only the first MAX_SHARING bytes of the range are counted. None if ``pagemap`` cannot
        be read. None also for a copy, because it shares all its pages.
        """
        if self._has_copy:
            return None
        page = self.machine.page
        first, last = -(-start // page), min(end, start + MAX_SHARING) // page
        try:
            entries = procfs.pagemap(self._folder.path("pagemap"), first, max(last - first, 0))
        except OSError:
            return None
        present = [entry for entry in entries if entry & procfs.PM_PRESENT]
        own = sum(bool(entry & procfs.PM_EXCLUSIVE) for entry in present)
        return own * page, (len(present) - own) * page

    def _candidates(self, mapping: Mapping) -> list[str]:
        return elf_candidates(self._folder, self._systems, self.exe, mapping)


def thread_of(found: Registers | ThreadState, name: str) -> Thread:
    """Make a Thread from a thread's registers and its name."""
    pointers = (found.thread_pointer, found.stack_pointer, found.program_counter)
    return Thread(found.tid, *pointers, name, registers=found.general)


class MappedFiles(HeldFiles):
    """The files behind mappings, held open for a Space. Each file is opened once."""

    def __init__(self, folder: ProcessFolder, systems: FileSystems) -> None:
        super().__init__()
        self._folder, self._systems = folder, systems
        self._indexes: dict[tuple[str, int, str], int] = {}

    def index(self, mapping: Mapping) -> int:
        """Return the index in ``paths`` of the file behind a mapping; -1 if it cannot be opened."""
        key = (mapping.device, mapping.inode, mapping.path)
        if key not in self._indexes:
            file = None if self.is_full else mapped_file(self._folder, self._systems, mapping)
            self._indexes[key] = -1 if file is None else self.add(file)
        return self._indexes[key]


def is_readable(mapping: Mapping) -> bool:
    """Return whether a mapping can be read from outside; the kernel's own data pages cannot, despite their ``r``."""
    return mapping.readable and not mapping.path.startswith(UNREADABLE)


def ranges_to_copy(mappings: Iterable[Mapping]) -> tuple[Ranges, Ranges]:
    """Return the ranges to copy while a process is stopped, and the shared memory to read later, both ascending.

    All private memory is copied, and the smallest shared mappings, at most MAX_SHARED_COPY bytes of these in all. The
    rest is read after the stop: other processes write to shared memory even during the stop.
    """
    readable = [mapping for mapping in mappings if is_readable(mapping)]
    copied = [mapping for mapping in readable if mapping.private]
    later: list[Mapping] = []
    left = MAX_SHARED_COPY
    for mapping in sorted((mapping for mapping in readable if not mapping.private), key=lambda mapping: mapping.size):
        left -= mapping.size
        (copied if left >= 0 and not is_device(mapping) else later).append(mapping)
    ranges = [sorted((mapping.start, mapping.end) for mapping in group) for group in (copied, later)]
    return ranges[0], ranges[1]


def is_device(mapping: Mapping) -> bool:
    """Return whether a mapping may be a device's memory, which reading may change."""
    return mapping.path.startswith("/dev/") and not mapping.path.startswith(("/dev/shm/", "/dev/zero"))


def executable(folder: ProcessFolder) -> str | None:
    """Return the program's path as the process sees it; None if the kernel does not show it."""
    try:
        return folder.link("exe")
    except OSError:
        return None


def command_line(folder: ProcessFolder) -> list[str]:
    """Return the beginning of the process's current arguments; empty if the kernel does not show them."""
    try:
        words = folder.read("cmdline", ARGUMENTS_BYTES).rstrip(b"\0").decode("utf-8", "replace")
    except OSError:
        return []
    return words.split("\0") if words else []


def program_of(folder: ProcessFolder) -> str:
    """Return the usual name of a process's program, which is a script's name for an interpreter; "" if unknown."""
    return program_name(command_line(folder), executable(folder))


def elf_candidates(folder: ProcessFolder, systems: FileSystems, exe: str | None, mapping: Mapping) -> list[str]:
    """Return paths at which ``systems`` may find the ELF file of a mapping. The path that stays valid longest comes
    first.

    Paths below ``/proc`` are valid only until the process ends. A deleted file can still be read through its mapping.
    The list is empty if another user's program serves the file (FUSE), because reading may never end.
    """
    if systems.is_answered(mapping.device) is False:
        return []
    name = mapping.path.removesuffix(DELETED)
    paths = seen_paths(folder, name)
    if _is_same(systems, mapping):
        paths.insert(0, mapping.path)
    if mapping.path == exe:
        paths.append(folder.path("exe"))
    return [*paths, map_file(folder, mapping)]


def seen_paths(folder: ProcessFolder, path: str) -> list[str]:
    """Return the two paths that a path in ``maps`` may mean. In a container it is below the process's root; after
    chroot it is the path itself.
    """
    return [folder.path("root") + path, path]


def about_unstopped(tids: Sequence[int]) -> str:
    """Return a text about the threads that could not be stopped: their ids, and the reason."""
    names = ", ".join(str(tid) for tid in tids[:5])
    if len(tids) == 1:
        return f"thread {names} sleeps uninterruptibly in the kernel (state D) and was not stopped"
    return f"threads {names} sleep uninterruptibly in the kernel (state D) and were not stopped"


def end_copy(copy: Frozen) -> list[str]:
    """End a copy; return a warning if a process of the copy is left, else an empty list."""
    if copy.end():
        return []
    return [UNCOLLECTED if copy.left is None else LEFT.format(copy.left)]


def map_file(folder: ProcessFolder, mapping: Mapping) -> str:
    """Return the path of the kernel's link to exactly the file behind a mapping.

    Following the link needs CAP_CHECKPOINT_RESTORE or root.
    """
    return folder.path(f"map_files/{mapping.start:x}-{mapping.end:x}")


def mapped_file(folder: ProcessFolder, systems: FileSystems, mapping: Mapping) -> Descriptor | None:
    """Open exactly the file behind a mapping.

    Return None if the file is not regular or cannot be opened. Return None also if another user's program serves the
    file (FUSE), because reading may never end.
    """
    if systems.is_answered(mapping.device) is False:
        return None
    with suppress(OSError):
        return Descriptor(systems.descriptor(map_file(folder, mapping)))
    for path in seen_paths(folder, mapping.path):
        with suppress(OSError, ValueError):
            file = Descriptor(systems.descriptor(path))
            if _is_of(os.fstat(file.number), mapping):
                return file
    return None


def _is_same(systems: FileSystems, mapping: Mapping) -> bool:
    try:
        with systems.open(mapping.path) as stream:
            return _is_of(os.fstat(stream.fileno()), mapping)
    except (OSError, ValueError):
        return False


def _is_of(found: os.stat_result, mapping: Mapping) -> bool:
    return (device_name(found.st_dev), found.st_ino) == (mapping.device, mapping.inode)


def _quiet_tasks(folder: ProcessFolder) -> list[int]:
    try:
        return folder.tasks()
    except OSError:
        return []


@contextmanager
def stopped(
    named: Named, limit: float | None = None, copies: bool = False, preparation: Preparation | None = None
) -> Iterator[Process]:
    """Yield the process while it is stopped: until the block ends in any way, or for ``limit`` seconds.

    ``copies``: whether to release the process once its private memory is copied. If there is too little room, only
    memory that may contain pointers is copied. If there is too little room even for that, the process stays stopped and
    a warning says so.
    ``preparation``: a preparation made earlier, which replaces ``named``. The process is then stopped without delay.

    Afterwards the process runs on as before; a process in a job-control stop stays in it. ``stopped_seconds`` is set
    when the process is released. Ctrl-Z waits until then, because a suspended gdbheap would keep the process stopped.

    If another tracer has the process, gdbheap first waits a few seconds for that tracer to detach. The kernel may let
    gdbheap read the mappings of the process, but neither stop it nor read its memory. The process is then yielded
    without memory, and runs on.

    Raises NoTarget, NotPermitted, Unsupported, and GdbheapError if the limit was too short.
    """
    folder = refusal.open_folder(named) if preparation is None else preparation.folder
    is_prepared = preparation is not None
    if preparation is None:
        preparation = stopping.when_untraced(folder, lambda: Preparation(folder))
        preparation.load_files()
    space = room_for(folder) if copies else None
    if not is_prepared:
        preparation.add_up()
    with _standing(limit, preparation, space) as process:
        if process.stopped_seconds is None:
            if copies and process.refusal is None:
                process.warnings.append(
                    "the private memory of the process is larger than the room for a copy"
                    f" ({headroom.room_for_copy():,} bytes, half of the free memory): the process was stopped until the"
                    " answer was complete (--clone stops it only briefly)"
                )
            yield process
    if process.is_copied:
        with _explained(process):
            yield process


@contextmanager
def _explained(process: Process) -> Iterator[None]:
    """If the process was released before all its memory was copied, replace an error in the block by one with this
    reason.
    """
    try:
        yield
    except GdbheapError as error:
        stop = process.tracer
        if stop is not None and stop.expired and stop.missed:
            raise stopping.let_go_early(process.folder, stop.seconds or 0) from error
        raise


@contextmanager
def _standing(limit: float | None, preparation: Preparation, space: Room | None) -> Iterator[Process]:
    """Yield the stopped process. At the end, release it first; then let Ctrl-Z work again, and restore this thread's
    priority.

    ``limit``: the most seconds for which the process is stopped, or None.
    ``space``: a buffer for a copy of its memory, or None.
    """
    stop: Stop | None = None
    process: Process | None = None
    folder = preparation.folder
    with stopping.undisturbed():
        try:
            refused = None
            try:
                stop = stopping.patiently(folder, lambda: Stop(folder, limit))
            except TimeoutError as error:
                raise stopping.not_stopped(folder, limit, error) from None
            except OSError as error:
                refused = _refused(preparation, error)
            process = _read(preparation, stop, refused, space)
            if stop is not None and stop.expired and not process.is_copied:
                raise stopping.let_go_early(folder, stop.seconds or limit or 0)
            yield process
        except Exception as error:
            if stop is not None and stop.expired and stop.missed and not isinstance(error, CallEnded):
                raise stopping.let_go_early(folder, stop.seconds or 0) from error
            raise
        finally:
            _let_go(stop, process)


def room_for(folder: ProcessFolder) -> Room | None:
    """Return a buffer for a process's private memory, with a reserve for growth, but no larger than gdbheap may use.

    Return None if gdbheap may use too little memory, or if the process has ended.
    """
    try:
        status = folder.status()
    except OSError:
        return None
    size = sum(procfs.kib(status.get(name)) or 0 for name in ("RssAnon", "RssFile", "VmSwap"))
    size = min(size + size // 16 + SPARE_BYTES, headroom.room_for_copy())
    if size < SPARE_BYTES:
        return None
    with suppress(OSError):
        return Room(size)
    return None


def _refused(preparation: Preparation, error: OSError) -> GdbheapError:
    """Return the error for a process that gdbheap may not stop, but whose mappings it can read.

    Raise the error in any other case, for example if another tracer has the process.
    """
    reason = refusal.explain(preparation.folder, error)
    try:
        if (
            isinstance(reason, NotPermitted)
            and not refusal.gather(preparation.folder).tracer
            and preparation.folder.read("maps", 1)
        ):
            return reason
    except OSError:
        pass
    raise reason from None


def _read(
    preparation: Preparation, stop: Stop | None, refused: GdbheapError | None, space: Room | None = None
) -> Process:
    folder = preparation.folder
    try:
        return Process(folder, stop.threads if stop else (), preparation, refused, stop, room=space)
    except OSError as error:
        raise refusal.explain(folder, error) from None


def _let_go(stop: Stop | None, process: Process | None) -> None:
    """Release the threads, and store in ``process`` how long they were stopped.

    This is done before all other work, because any other work may fail.
    """
    if stop is None:
        return
    try:
        stop.release()
    except BaseException:
        stop.release()
        raise
    if process is not None:
        process.stopped_seconds = stop.seconds
