"""A process's folder in ``/proc``, held open, so that its files never belong to a later process with the same id.

Files are read through the folder's descriptor. After the process has ended, reads fail with ESRCH, even if another
process has got its id. Formats: proc(5).
"""

from __future__ import annotations

import os
import re
import signal
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Union

from gdbheap._native import Descriptor, open_patiently, read_at_patiently, read_link_patiently, read_patiently
from gdbheap.dataclass import dataclass
from gdbheap.machines.machine import Machine

PROC = "/proc"
# The name of the memory from brk(2) in maps and smaps.
BREAK = "[heap]"
SUMS = ("Rss", "Swap", "Anonymous", "Pss_Anon", "AnonHugePages", "LazyFree")
TEXT_LIMIT = 1 << 20
TABLE_LIMIT = 1 << 30
TASK_LIMIT = 100_000
PF_EXITING, PF_KTHREAD = 0x00000004, 0x00200000
# Fields of stat, counted from the state, which is the first one after the name (proc(5)).
STATE, PARENT, FLAGS, MINOR_FAULTS, MAJOR_FAULTS, START, VIRTUAL, PAGES = 0, 1, 6, 7, 9, 19, 20, 21
START_CODE, START_STACK, EXIT_CODE = 23, 25, 49
ENDED = ("Z", "X", "x")
# Bits of a pagemap entry (Documentation/admin-guide/mm/pagemap.rst; the second since Linux 4.2).
PM_PRESENT, PM_EXCLUSIVE = 1 << 63, 1 << 56
PAGEMAP_AT_ONCE = 1 << 20
ALONE = bytes(byte & 0x81 == 0x81 for byte in range(256))

# The kernel reads these files without a lock. For all others it waits for the locks of the memory map and of execve().
# A thread of the process may hold these locks for ever.
UNLOCKED = ("status", "statm", "comm", "cgroup", "limits", "mountinfo")

# A path below /proc: the descriptors of whichever process opens it.
OWN_DESCRIPTORS = "self/fd"

_HELD = re.compile(rf"^{PROC}/{OWN_DESCRIPTORS}/\d+/")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class Rss:
    """Resident and swapped bytes of the whole target, None if unknown, and their ``source``.

    ``private``: whether resident pages of files and shared memory are unknown and not included.
    ``anonymous``: the resident bytes without a file (RssAnon).
    ``shared``: whether other processes may share some of the changed pages, as after fork().
    ``proportional``: the anonymous bytes, with each page divided by the number of processes that map it (Pss_Anon).
    None if gdbheap made a copy, because the copy counts as a process.
    ``huge``: the resident bytes in transparent huge pages (AnonHugePages).
    ``lazy``: the bytes that madvise(MADV_FREE) freed (LazyFree). The kernel takes them back when it needs them.
    ``dirty``: the resident bytes on pages that were written to.
    ``locked``: the resident bytes that mlock() keeps.
    ``shmem``: the resident bytes of shared memory (RssShmem).
    """

    bytes: int | None
    swap: int | None
    source: str
    private: bool = False
    anonymous: int | None = None
    shared: bool = True
    proportional: int | None = None
    huge: int | None = None
    lazy: int | None = None
    dirty: int | None = None
    locked: int | None = None
    shmem: int | None = None


class ProcessFolder:
    """The folder ``/proc/PID`` of the process that has this id now.

    Raises OSError (ENOENT if there is no such process). Once a process has ended and its parent has waited for it, the
    kernel may reuse the id. From then on the folder is empty. A caller that needs the id opens a handle by the id and
    then checks ``is_there``. If that is true, the handle belongs to this process.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder = Descriptor(os.open(f"{PROC}/{pid}", _FOLDER))

    def __str__(self) -> str:
        return str(self.pid)

    @property
    def descriptor(self) -> int:
        """The folder's descriptor, open as long as this object exists."""
        return self._folder.number

    @property
    def place(self) -> str:
        """The folder's path below /proc, for gdbheap and its forked children. It never names another process."""
        return f"{OWN_DESCRIPTORS}/{self.descriptor}"

    def path(self, name: str) -> str:
        """Return the path of a file in the folder, for callers that open it while this object exists."""
        return f"{PROC}/{self.place}/{name}"

    def is_there(self) -> bool:
        """Return whether the id still belongs to this process: it runs, or its parent has not yet waited for it."""
        try:
            os.stat("stat", dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return False
        return True

    def is_running(self) -> bool:
        """Return whether at least one thread of the process has not ended; the first thread may end before the
        others."""
        try:
            return self.living() is not None
        except OSError:
            return False

    def living(self) -> tuple[str, dict[str, str]] | None:
        """Return (folder, fields of its ``status``) for the folder that shows the process's memory.

        The folder is a path below the process's own folder. It is "" until the first thread has ended. Then it is
        "task/TID/" of the first thread that has not (proc(5)). Return None if all threads have ended. Reading
        ``status`` never blocks. Raises OSError.
        """

        def places() -> Iterator[str]:
            yield ""
            yield from (f"task/{tid}/" for tid in self.tasks())

        with suppress(FileNotFoundError, ProcessLookupError):
            for place in places():
                with suppress(FileNotFoundError, ProcessLookupError):
                    status = parse_status(self.read(f"{place}status"))
                    if status.get("State", ENDED[0])[:1] not in ENDED:
                        return place, status
        return None

    def pidfd(self) -> int:
        """Return a new pidfd of the process (pidfd_open(2), Linux 5.3). Raises OSError, AttributeError."""
        descriptor = os.pidfd_open(self.pid)
        if not self.is_there():
            os.close(descriptor)
            raise ProcessLookupError(f"process {self.pid} has ended")
        return descriptor

    def signal(self, number: int) -> None:
        """Send a signal to this process, never to a later one with the same id. Raises OSError."""
        try:
            descriptor = self.pidfd()
        except (AttributeError, OSError) as error:
            if isinstance(error, ProcessLookupError) or not self.is_there():
                raise ProcessLookupError(f"process {self.pid} has ended") from None
            # Before Linux 5.3, or if a filter refuses pidfds: signal by id, right after the check that the id still
            # belongs to this process.
            os.kill(self.pid, number)
            return
        try:
            signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)

    def real_user(self) -> int:
        """Return the real uid of the process, which is the user who started it; -1 if unknown. Raises OSError."""
        words = self.status().get("Uid", "").split()
        return int(words[0]) if words and words[0].isdigit() else -1

    def read(self, name: str, limit: int = TEXT_LIMIT) -> bytes:
        """Return the first ``limit`` bytes of a file.

        Raises OSError. Raises TimeoutError if the kernel would wait for a thread that holds the lock of the memory map
        or is in execve().
        """
        if os.path.basename(name) not in UNLOCKED:
            return read_patiently(self.path(name), limit)
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder.number)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            return b"".join(_parts(stream.fileno(), limit))

    def memory(self) -> Descriptor:
        """Open, for writing, the memory of the program that the process runs now.

        The descriptor never gives access to a program that the process runs later. Raises OSError.
        """
        return Descriptor(open_patiently(self.path("mem"), True))

    def link(self, name: str) -> str:
        """Return the target of a link in the folder. Raises the errors of ``read``."""
        return read_link_patiently(self.path(name))

    def check_memory(self) -> None:
        """Raise OSError if the process's memory may not be read.

        The kernel requires the same permission as for stopping the process, but allows other tracers.
        """
        Descriptor(open_patiently(self.path("mem"), False))

    def tasks(self) -> list[int]:
        """Return the ids of the process's threads, ascending, at most TASK_LIMIT. Raises OSError."""
        descriptor = os.open("task", _FOLDER, dir_fd=self._folder.number)
        try:
            return sorted(int(name) for name in os.listdir(descriptor) if name.isdigit())[:TASK_LIMIT]
        finally:
            os.close(descriptor)

    def thread_name(self, tid: int) -> str:
        """Return the name of a thread, unprintable bytes included; ``""`` once the thread has ended."""
        try:
            return self.read(f"task/{tid}/comm").decode("utf-8", "replace").rstrip("\n")
        except OSError:
            return ""

    def status(self, task: int | None = None) -> dict[str, str]:
        """Return the fields of ``status``, of one thread if ``task`` is given. Raises OSError."""
        return parse_status(self.read("status" if task is None else f"task/{task}/status"))

    def is_filtered(self) -> bool:
        """Return whether a thread runs under seccomp. Each thread has a mode of its own (proc_pid_status(5)); a thread
        that has ended meanwhile does not count. Raises OSError.
        """
        for tid in self.tasks():
            with suppress(OSError):
                if self.status(tid).get("Seccomp", "0") != "0":
                    return True
        return False

    def soft_limit(self, name: str) -> int | None:
        """Return a soft limit by its name in ``limits`` ("Max processes"); None if it is unlimited or missing.

        Raises OSError.
        """
        for line in self.read("limits").decode("ascii", "replace").splitlines():
            if line.startswith(name):
                soft = line[len(name) :].split()[0]
                return int(soft) if soft.isdigit() else None
        return None

    def flags(self) -> int:
        """Return the kernel's flags of the first thread (PF_… of <linux/sched.h>). Raises OSError."""
        return parse_flags(self.read("stat"))

    def owner(self) -> int:
        """Return the uid that owns the process's files in /proc: root's if the process is not dumpable."""
        return os.stat("status", dir_fd=self._folder.number).st_uid


Named = Union[int, ProcessFolder]
"""A process: its id, which may belong to another process by now, or its folder, held open since it was named."""


def as_shown(path: str, pid: int | None) -> str:
    """Return a path from ``ProcessFolder.path`` as a person would type it."""
    return _HELD.sub(f"{PROC}/{pid}/", path)


def _parts(descriptor: int, limit: int) -> Iterator[bytes]:
    while limit > 0:
        part = os.read(descriptor, min(limit, 1 << 20))
        if not part:
            return
        limit -= len(part)
        yield part


def pagemap(path: str, first: int, count: int) -> tuple[int, ...]:
    """Return the ``pagemap`` entries of ``count`` pages, beginning with page number ``first``. Entries beyond the
    file's end are missing. Raises OSError.
    """
    raw = read_at_patiently(path, 8 * first, 8 * count)
    return struct.unpack(f"<{len(raw) // 8}Q", raw[: len(raw) // 8 * 8])


def exclusive_pages(path: str, start: int, end: int, page: int) -> int:
    """Return how many pages of [start, end) only this process maps. Raises OSError."""
    count = 0
    for at in range(start // page * 8, end // page * 8, PAGEMAP_AT_ONCE):
        raw = read_at_patiently(path, at, min(PAGEMAP_AT_ONCE, end // page * 8 - at))
        # Both bits, PM_PRESENT and PM_EXCLUSIVE, are in the last byte of an entry.
        count += raw[7::8].translate(ALONE).count(1)
    return count


def parse_status(text: bytes) -> dict[str, str]:
    """Return {name: value} from lines of the form ``Name: value``.

    If a name is in several lines, the first line is used. A process's name thus cannot replace a field.
    """
    fields: dict[str, str] = {}
    for line in text.decode("utf-8", "replace").split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name, value.strip())
    return fields


def parse_rollup(text: bytes) -> Rss | None:
    """Return the sums in the text of ``smaps_rollup``; None if the field Rss is missing.

    The kernel's Rss does not include pages of hugetlbfs. They are memory too, so they are added here.
    """
    fields = parse_status(text)
    sizes = [kib(fields.get(name)) for name in SUMS]
    shared = kib(fields.get("Shared_Dirty")) != 0
    rss, swap, anonymous, proportional, huge, lazy = sizes
    if rss is None:
        return None
    reserved = sum(kib(fields.get(name)) or 0 for name in ("Private_Hugetlb", "Shared_Hugetlb"))
    source = "smaps_rollup: Rss and Hugetlb" if reserved else "smaps_rollup"
    parts = [kib(fields.get(name)) for name in ("Private_Dirty", "Shared_Dirty")]
    dirty = None if None in parts else sum(part or 0 for part in parts)
    locked = kib(fields.get("Locked"))
    return Rss(rss + reserved, swap, source, False, anonymous, shared, proportional, huge, lazy, dirty, locked)


def stat_fields(stat: bytes) -> list[str]:
    """Return the fields of ``/proc/PID/stat``, beginning with the state.

    The field before the state is the program's name, which may contain spaces and parentheses.
    """
    return stat.rpartition(b")")[2].decode("ascii", "replace").split()


def parse_flags(stat: bytes) -> int:
    """Return the kernel's flags of a task from its ``stat``; 0 if they are missing."""
    return _number(stat, FLAGS) or 0


def parse_start(stat: bytes) -> int | None:
    """Return the start time of the process from ``stat``, in clock ticks since boot; None if it is missing."""
    return _number(stat, START)


def _number(stat: bytes, place: int) -> int | None:
    fields = stat_fields(stat)
    return int(fields[place]) if len(fields) > place and fields[place].isdigit() else None


def parse_auxv(machine: Machine, data: bytes) -> dict[int, int]:
    """Return the auxiliary vector as {type: value}, up to AT_NULL (getauxval(3))."""
    found: dict[int, int] = {}
    words = machine.words_of(data)
    for key, value in zip(words[::2], words[1::2]):
        if key == 0:
            break
        found.setdefault(key, value)
    return found


def kib(value: str | None) -> int | None:
    """Return the number of bytes in a text such as ``"1234 kB"``; None for any other text."""
    words = (value or "").split()
    if len(words) != 2 or not words[0].isdigit() or words[1] != "kB":
        return None
    return int(words[0]) * 1024
