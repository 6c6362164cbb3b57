"""A live process as a target, through ``/proc/PID``.

``Process`` reads and does not stop anything: in gdb the process stands still already. ``stopped`` is for the shell: it
prepares, stops every thread, reads, and lets go however its block ends. Pages that are not there are never read from
the process, which would make the kernel put some there.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from gdbheap._native import Pages, Space, Stop
from gdbheap.errors import GdbheapError, NoTarget, NotPermitted, one_line
from gdbheap.target import procfs, refusal
from gdbheap.target.elf import ElfFiles, find_objects
from gdbheap.target.mappings import Mapping, parse_locked, parse_maps, parse_smaps
from gdbheap.target.procfs import ProcessFolder
from gdbheap.target.ranges import PAGE_SIZE, Ranges, subtract
from gdbheap.target.target import AT_PAGESZ, Rss, Target, Thread

PRIVATE_ANONYMOUS, PRIVATE_FILE, FROM_PROCESS = 0, 1, 2
FILE_LIMIT = 400
NO_SCAN = (errno.ENOTTY, errno.EINVAL, errno.ENOSYS)
MOST_PAGEMAP = 4 << 30
DELETED = " (deleted)"
SYMBOL_FILES = ("libc.so", "libc-", "libpython")
USER_ADDRESSES = 1 << 63
UNREADABLE = ("[vvar", "[vsyscall]")
Registers = tuple[int, int, int, int, Sequence[int]]
"""A thread's id, thread pointer, sp, pc and general registers."""

_JOB_CONTROL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}


class Preparation:
    """What can be read of a process while it still runs: its files' build-ids and symbols, its threads' names.

    Raises NoTarget, NotPermitted or Unsupported for a process that nobody could look into.
    """

    def __init__(self, pid: int) -> None:
        self.folder = refusal.open_folder(pid)
        refusal.check(self.folder)
        self.files = ElfFiles()
        self.exe = executable(self.folder)
        self.thread_names = {tid: self.folder.thread_name(tid) for tid in _quiet_tasks(self.folder)}

    def load_files(self) -> None:
        """Open the ELF files that the process maps now; read the symbols of its program, its libc and its libpython."""
        with suppress(OSError):
            for mapping in parse_maps(self.folder.read("maps", procfs.TABLE_LIMIT)):
                if mapping.offset == 0 and mapping.path.startswith("/") and mapping.readable:
                    self._load(mapping)

    def _load(self, mapping: Mapping) -> None:
        wanted = mapping.path == self.exe or os.path.basename(mapping.path).startswith(SYMBOL_FILES)
        for path in elf_candidates(self.folder, self.exe, mapping):
            file = self.files.get(path)
            if file is not None:
                if wanted:
                    _ = file.symbols
                return


class Process(Target):
    """A live process, as it is now. It must stand still while it is read for the picture to be consistent.

    ``threads`` are (tid, thread pointer, sp, pc) from whoever stopped it. With ``memory_refused`` (the reason why)
    no memory is read: mappings and residency are still answered. Raises NoTarget, NotPermitted, OSError.
    """

    def __init__(
        self,
        pid: int,
        threads: Iterable[Registers] = (),
        preparation: Preparation | None = None,
        memory_refused: GdbheapError | None = None,
    ) -> None:
        super().__init__("process", pid=pid)
        self._ready = preparation or Preparation(pid)
        self._standing = list(threads)
        # What holds its threads, when that is us.
        self.tracer: Stop | None = None
        self._folder = self._ready.folder
        self.exe = self._ready.exe
        self.refusal = memory_refused
        self.mappings = parse_maps(self._folder.read("maps", procfs.TABLE_LIMIT))
        if not len(self.mappings):
            raise NoTarget(f"process {pid} has no memory any more: it is ending; give a core if it leaves one")
        self.rss = self._read_rss()
        self._read_pages()
        self._read_locked()
        self._open_space()
        self._read_rest(self._standing)

    def again(self) -> Process:
        """The same process as it is now, after something was called in it; its threads stand where they stood."""
        assert self.pid is not None
        return Process(self.pid, self._standing, self._ready, self.refusal)

    def _read_rss(self) -> Rss:
        """From ``smaps_rollup`` (Linux 4.14), else the sums over ``smaps``, else ``status``."""
        with suppress(OSError):
            found = procfs.parse_rollup(self._folder.read("smaps_rollup"))
            if found is not None:
                return found
        self._read_smaps()
        sizes = [(mapping.rss, mapping.swap) for mapping in self.mappings if mapping.rss is not None]
        if sizes:
            return Rss(sum(rss or 0 for rss, _ in sizes), sum(swap or 0 for _, swap in sizes), "smaps")
        with suppress(OSError):
            fields = self._folder.status()
            rss, swap, anonymous = (procfs.kib(fields.get(name)) for name in ("VmRSS", "VmSwap", "RssAnon"))
            return Rss(rss, swap, "status", anonymous=anonymous)
        return Rss(None, None, "unknown")

    def _read_locked(self) -> None:
        with suppress(OSError):
            if procfs.kib(self._folder.status().get("VmLck")):
                self.locked = parse_locked(self._folder.read("smaps", procfs.TABLE_LIMIT))

    def _read_smaps(self) -> None:
        """Each mapping's own figures. The kernel walks all pages for them, 35 ms for each GiB, so only when needed."""
        with suppress(OSError):
            self.mappings = parse_smaps(self._folder.read("smaps", procfs.TABLE_LIMIT))

    def _read_pages(self) -> None:
        path = self._folder.path("pagemap")
        ranges = [(start, end) for start, end in self.mappings.ranges() if end < USER_ADDRESSES]
        try:
            self.pages = self._find_pages(path, ranges)
        except OSError as error:
            reason = one_line(error.strerror or error)
            self.warnings.append(f"{path} cannot be read ({reason}): it is unknown which pages are resident")
            self._read_smaps()
            return
        if sum(self.pages.count(start, end)[0] for start, end in ranges) != self.rss.bytes:
            self._compare_pages(self.pages)

    def _find_pages(self, path: str, ranges: Ranges) -> Pages:
        """The kernel names the runs of pages since Linux 6.7; before that each page has an entry to read."""
        try:
            return Pages.from_pagemap(path, ranges)
        except OSError as error:
            if error.errno not in NO_SCAN:
                raise
        return Pages.from_pagemap(path, self._touched(ranges), False)

    def _touched(self, ranges: Ranges) -> Ranges:
        """``ranges`` without reserved memory that nobody touched, if there is much: a terabyte has 2 GiB of entries."""
        if sum(end - start for start, end in ranges) - (self.rss.bytes or 0) <= MOST_PAGEMAP:
            return ranges
        self._read_smaps()
        return subtract(ranges, [(mapping.start, mapping.end) for mapping in self.mappings if mapping.untouched])

    def _compare_pages(self, pages: Pages) -> None:
        """Say where ``pagemap`` and ``smaps`` disagree: device memory is not in Rss."""
        self._read_smaps()
        differences = [
            pages.count(mapping.start, mapping.end)[0] - mapping.rss
            for mapping in self.mappings
            if mapping.rss is not None and mapping.end < USER_ADDRESSES
        ]
        differing = [difference for difference in differences if difference]
        if differing:
            self.warnings.append(
                f"pagemap and smaps differ in {len(differing)} of {len(differences)} mappings,"
                f" by {sum(differing):+,} bytes in all: pages are counted by pagemap"
            )

    def _open_space(self) -> None:
        if self.refusal is not None:
            self.partial = True
            self.warnings.append(f"no memory could be read: {self.refusal}")
            return
        files = MappedFiles(self._folder)
        rows = [self._row(mapping, files) for mapping in self.mappings if is_readable(mapping)]
        self.space = Space.for_process(self._folder.pid, rows, self.pages, files.paths, self.rss.shared)

    def _row(self, mapping: Mapping, files: MappedFiles) -> tuple[int, int, int, int, int]:
        """How bytes of a mapping are read, in the form that ``Space.for_process`` wants."""
        kind, index = FROM_PROCESS, -1
        if mapping.private and (mapping.anonymous or mapping.path == "/dev/zero"):
            kind = FROM_PROCESS if mapping.path == "[vdso]" else PRIVATE_ANONYMOUS
        elif mapping.private:
            kind, index = PRIVATE_FILE, files.index(mapping)
        return mapping.start, mapping.end, kind, index, mapping.offset

    def _read_rest(self, threads: Iterable[Registers]) -> None:
        with suppress(OSError):
            self.auxv = procfs.parse_auxv(self._folder.read("auxv"))
        self.page_size = self.auxv.get(AT_PAGESZ, PAGE_SIZE)
        self.threads = [self._thread(*registers) for registers in threads]
        self.objects = find_objects(self.mappings, self.space, self._ready.files, self._candidates)
        if self.rss.swap and self.refusal is None:
            self.warnings.append(f"{self.rss.swap:,} bytes are swapped out: reading them brings them back into memory")

    def _thread(self, tid: int, fs_base: int, sp: int, pc: int, general: Sequence[int]) -> Thread:
        name = self._ready.thread_names.get(tid)
        known = self._folder.thread_name(tid) if name is None else name
        return Thread(tid, fs_base, sp, pc, known, registers=general)

    def _candidates(self, mapping: Mapping) -> list[str]:
        return elf_candidates(self._folder, self.exe, mapping)


class MappedFiles:
    """The files behind private mappings, each once, and no more than may be open at a time."""

    def __init__(self, folder: ProcessFolder) -> None:
        self.paths: list[str] = []
        self._folder = folder
        self._indexes: dict[tuple[str, int, str], int] = {}
        self._limit = min(FILE_LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)

    def index(self, mapping: Mapping) -> int:
        """Index in ``paths`` of the file behind a mapping; -1 when it cannot be opened."""
        key = (mapping.device, mapping.inode, mapping.path)
        if key not in self._indexes:
            path = mapped_file(self._folder, mapping) if len(self.paths) < self._limit else None
            self._indexes[key] = -1 if path is None else len(self.paths)
            self.paths.extend([] if path is None else [path])
        return self._indexes[key]


def is_readable(mapping: Mapping) -> bool:
    """Whether bytes of it can be read from outside: the kernel's own data pages cannot, though they say ``r``."""
    return mapping.readable and not mapping.path.startswith(UNREADABLE)


def executable(folder: ProcessFolder) -> str | None:
    """The program's path as the process sees it; None when the kernel does not say."""
    try:
        return folder.link("exe")
    except OSError:
        return None


def elf_candidates(folder: ProcessFolder, exe: str | None, mapping: Mapping) -> list[str]:
    """Where the ELF file behind a mapping may be found, the path that lasts longest first.

    A deleted file is still behind its mapping.
    """
    paths = seen_paths(folder, mapping.path.removesuffix(DELETED))
    if mapping.path == exe:
        paths.append(folder.path("exe"))
    return [*paths, map_file(folder, mapping)]


def seen_paths(folder: ProcessFolder, path: str) -> list[str]:
    """Where a path of ``maps`` may lead: a container's starts at its root, of a chroot's the kernel says the whole."""
    return [folder.path("root") + path, path]


def map_file(folder: ProcessFolder, mapping: Mapping) -> str:
    """The kernel's link to exactly the file behind a mapping; following it takes CAP_CHECKPOINT_RESTORE or root."""
    return folder.path(f"map_files/{mapping.start:x}-{mapping.end:x}")


def mapped_file(folder: ProcessFolder, mapping: Mapping) -> str | None:
    """A path that opens the very file behind a private mapping, None when there is none.

    Only regular files: opening a device may do something.
    """
    exact = map_file(folder, mapping)
    with suppress(OSError):
        if stat.S_ISREG(os.stat(exact).st_mode) and os.access(exact, os.R_OK):
            return exact
    return next((path for path in seen_paths(folder, mapping.path) if _is_same(path, mapping)), None)


def _is_same(path: str, mapping: Mapping) -> bool:
    try:
        path.encode()
        found = os.stat(path)
    except (OSError, ValueError):
        return False
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    same = (device, found.st_ino) == (mapping.device, mapping.inode)
    return same and stat.S_ISREG(found.st_mode) and os.access(path, os.R_OK)


def _quiet_tasks(folder: ProcessFolder) -> list[int]:
    try:
        return folder.tasks()
    except OSError:
        return []


@contextmanager
def stopped(pid: int) -> Iterator[Process]:
    """The process ``pid``, standing still until the block ends, however it ends; then it runs on as it did before.

    A process in a job-control stop stays in it. ``stopped_seconds`` is set when it was let go. Ctrl-Z waits until then:
    a suspended gdbheap would keep the process standing. When only its memory is refused, the process is yielded without
    memory and without having been stopped. What was prepared is kept out of the garbage collector's rounds meanwhile:
    they took as long as the reading. Raises NoTarget, NotPermitted, Unsupported.
    """
    preparation = Preparation(pid)
    preparation.load_files()
    gc.freeze()
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _JOB_CONTROL)
    stop: Stop | None = None
    process: Process | None = None
    try:
        refused = None
        try:
            stop = Stop(pid)
        except OSError as error:
            refused = _refused(preparation, error)
        process = _read(preparation, stop, refused)
        process.tracer = stop
        yield process
    finally:
        _let_go(stop, process)
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        gc.unfreeze()


def _refused(preparation: Preparation, error: OSError) -> GdbheapError:
    """Why the process could not be stopped; raised when nothing of it can be read either."""
    reason = refusal.explain(preparation.folder.pid, error)
    readable = isinstance(reason, NotPermitted) and not isinstance(error, TimeoutError)
    try:
        if readable and not refusal.gather(preparation.folder).tracer and preparation.folder.read("maps", 1):
            return reason
    except OSError:
        pass
    raise reason from None


def _read(preparation: Preparation, stop: Stop | None, refused: GdbheapError | None) -> Process:
    pid = preparation.folder.pid
    try:
        return Process(pid, stop.threads if stop else (), preparation, refused)
    except OSError as error:
        raise refusal.explain(pid, error) from None


def _let_go(stop: Stop | None, process: Process | None) -> None:
    """Release the threads first of all: whatever comes after may fail."""
    if stop is None:
        return
    try:
        stop.release()
    except BaseException:
        stop.release()
        raise
    if process is not None:
        process.stopped_seconds = stop.seconds
