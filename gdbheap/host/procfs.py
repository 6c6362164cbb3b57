"""One process's folder in ``/proc``, held open: what tells a process from another one that gets its number later.

Files are read through the folder's descriptor: when the process is gone they fail with ESRCH, whoever has its
number by then. Formats: proc(5).
"""

from __future__ import annotations

import os
import re
import signal
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Union

from gdbheap._native import Descriptor, open_patiently, read_at_patiently, read_link_patiently, read_patiently
from gdbheap.machines.machine import Machine

PROC = "/proc"
# The name of the memory that brk(2) gives, in maps and smaps.
BREAK = "[heap]"
SUMS = ("Rss", "Swap", "Anonymous", "Pss_Anon", "AnonHugePages", "LazyFree")
TEXT_LIMIT = 1 << 20
TABLE_LIMIT = 1 << 30
TASK_LIMIT = 100_000
PF_KTHREAD = 0x00200000
# Fields of stat, counted from the state on, which follows the name (proc(5)).
STATE, PARENT, FLAGS, MINOR_FAULTS, MAJOR_FAULTS, START, PAGES, START_CODE, START_STACK = 0, 1, 6, 7, 9, 19, 21, 23, 25
ENDED = ("Z", "X", "x")
# Of an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst; the second since Linux 4.2).
PM_PRESENT, PM_EXCLUSIVE = 1 << 63, 1 << 56
PAGEMAP_AT_ONCE = 1 << 20
ALONE = bytes(byte & 0x81 == 0x81 for byte in range(256))

# The kernel reads these files without a lock. For the others it waits for the locks of the memory map and of execve(),
# which a thread of the process may keep for ever.
UNLOCKED = ("status", "statm", "comm", "cgroup", "limits", "mountinfo")

# Below /proc: the descriptors of whoever asks.
OWN_DESCRIPTORS = "self/fd"

_HELD = re.compile(rf"^{PROC}/{OWN_DESCRIPTORS}/\d+/")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class Rss:
    """Resident and swapped bytes of the whole target, None when nobody knows, and who says so.

    ``private``: what was resident of files and of shared memory is not among them, and nobody knows it.
    ``anonymous``: the resident bytes that no file is behind (RssAnon), None when nobody says. ``proportional``: its
    share of these, each page divided by the number of processes that have it (Pss_Anon), None beside a copy of ours,
    which counts as one. ``shared``: whether other processes may have some of its changed pages too, as after fork().
    ``huge``: of the resident bytes those in huge pages that the kernel made of ordinary memory (AnonHugePages).
    ``lazy``: of the anonymous ones those that were given back by madvise(MADV_FREE), and that the kernel takes when it
    needs them (LazyFree). ``dirty``: of all resident ones those that were written to since they were read; ``locked``:
    those that mlock() keeps there; ``shmem``: those of shared memory (RssShmem).
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
    """``/proc/PID`` of the process that has the number now. Raises OSError (ENOENT when there is no such process).

    The kernel gives a number away again once its process has ended and was waited for; from then on nothing is in the
    folder. Where a number has to be used, what has it is taken hold of first, and ``is_there`` asked then: the number
    was its own up to that moment.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._folder = Descriptor(os.open(f"{PROC}/{pid}", _FOLDER))

    def __str__(self) -> str:
        return str(self.pid)

    @property
    def descriptor(self) -> int:
        """The folder's descriptor, which is open as long as this is there."""
        return self._folder.number

    @property
    def place(self) -> str:
        """Return its path below /proc, which leads to this process alone: for us, and for children that we fork."""
        return f"{OWN_DESCRIPTORS}/{self.descriptor}"

    def path(self, name: str) -> str:
        """The path of a file of the process, for those who open it themselves while this is there."""
        return f"{PROC}/{self.place}/{name}"

    def is_there(self) -> bool:
        """Whether the number is its own: it runs, or nobody has waited for its end yet."""
        try:
            os.stat("stat", dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return False
        return True

    def is_running(self) -> bool:
        """Whether it has not ended: where its first thread has, others may run on."""
        try:
            return self.living() is not None
        except OSError:
            return False

    def living(self) -> tuple[str, dict[str, str]] | None:
        """The place below its folder where the kernel shows its memory, and the fields of ``status`` there.

        The place is "" until its first thread has ended, then "task/TID/" of the first thread that has not (proc(5));
        None if all have ended. Reading ``status`` never blocks. Raises OSError."""

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
        """A new descriptor of the process (pidfd_open(2), Linux 5.3). Raises OSError, AttributeError."""
        descriptor = os.pidfd_open(self.pid)
        if not self.is_there():
            os.close(descriptor)
            raise ProcessLookupError(f"process {self.pid} has ended")
        return descriptor

    def signal(self, number: int) -> None:
        """Send a signal to this process, not to one that has its number since. Raises OSError."""
        try:
            descriptor = self.pidfd()
        except (AttributeError, OSError) as error:
            if isinstance(error, ProcessLookupError) or not self.is_there():
                raise ProcessLookupError(f"process {self.pid} has ended") from None
            # Before Linux 5.3, or where a filter refuses it: by number, right after that was its own.
            os.kill(self.pid, number)
            return
        try:
            signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)

    def real_user(self) -> int:
        """The real uid of the process. Raises OSError."""
        words = self.status().get("Uid", "").split()
        return int(words[0]) if words and words[0].isdigit() else -1

    def read(self, name: str, limit: int = TEXT_LIMIT) -> bytes:
        """The first ``limit`` bytes of a file. Raises OSError; TimeoutError where the kernel would wait for a thread of
        the process that keeps the lock of its memory map, or is in execve()."""
        if os.path.basename(name) not in UNLOCKED:
            return read_patiently(self.path(name), limit)
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder.number)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            return b"".join(_parts(stream.fileno(), limit))

    def memory(self) -> Descriptor:
        """Open the memory of the program that it runs now, to write there. The descriptor never leads to a program
        that the process runs later. Raises OSError."""
        return Descriptor(open_patiently(self.path("mem"), True))

    def link(self, name: str) -> str:
        """Where a link points. Raises OSError as ``read``."""
        return read_link_patiently(self.path(name))

    def check_memory(self) -> None:
        """Raises OSError where its memory may not be read, for which the kernel asks the same as for a stop, but for
        other tracers."""
        Descriptor(open_patiently(self.path("mem"), False))

    def tasks(self) -> list[int]:
        """The ids of its threads, ascending; at most TASK_LIMIT. Raises OSError."""
        descriptor = os.open("task", _FOLDER, dir_fd=self._folder.number)
        try:
            return sorted(int(name) for name in os.listdir(descriptor) if name.isdigit())[:TASK_LIMIT]
        finally:
            os.close(descriptor)

    def thread_name(self, tid: int) -> str:
        """The name of a thread as it is, unprintable bytes and all; ``""`` when it is gone."""
        try:
            return self.read(f"task/{tid}/comm").decode("utf-8", "replace").rstrip("\n")
        except OSError:
            return ""

    def status(self, task: int | None = None) -> dict[str, str]:
        """The fields of ``status``, of one thread when ``task`` is given. Raises OSError."""
        return parse_status(self.read("status" if task is None else f"task/{task}/status"))

    def soft_limit(self, name: str) -> int | None:
        """A limit of the process by its name in ``limits`` ("Max processes"); None: unlimited, or not there.

        Raises OSError."""
        for line in self.read("limits").decode("ascii", "replace").splitlines():
            if line.startswith(name):
                soft = line[len(name) :].split()[0]
                return int(soft) if soft.isdigit() else None
        return None

    def flags(self) -> int:
        """The kernel's flags of the task (PF_… of <linux/sched.h>). Raises OSError."""
        return parse_flags(self.read("stat"))

    def owner(self) -> int:
        """The uid that owns the files in it: root's, not the process's, when the process is not dumpable."""
        return os.stat("status", dir_fd=self._folder.number).st_uid


Named = Union[int, ProcessFolder]
"""A process by its number, which means whoever has that now, or held since it was named."""


def as_shown(path: str, pid: int | None) -> str:
    """A path of ``ProcessFolder.path`` as a person would type it."""
    return _HELD.sub(f"{PROC}/{pid}/", path)


def _parts(descriptor: int, limit: int) -> Iterator[bytes]:
    while limit > 0:
        part = os.read(descriptor, min(limit, 1 << 20))
        if not part:
            return
        limit -= len(part)
        yield part


def pagemap(path: str, first: int, count: int) -> tuple[int, ...]:
    """The entries of ``count`` pages from page ``first`` on; fewer at the end. Raises OSError."""
    raw = read_at_patiently(path, 8 * first, 8 * count)
    return struct.unpack(f"<{len(raw) // 8}Q", raw[: len(raw) // 8 * 8])


def exclusive_pages(path: str, start: int, end: int, page: int) -> int:
    """How many pages of [start, end) one process alone maps. Raises OSError."""
    count = 0
    for at in range(start // page * 8, end // page * 8, PAGEMAP_AT_ONCE):
        raw = read_at_patiently(path, at, min(PAGEMAP_AT_ONCE, end // page * 8 - at))
        # Both bits are in the last byte of an entry.
        count += raw[7::8].translate(ALONE).count(1)
    return count


def parse_status(text: bytes) -> dict[str, str]:
    """``Name: value`` lines; the first of a name counts, so that no process's own name can add a field."""
    fields: dict[str, str] = {}
    for line in text.decode("utf-8", "replace").split("\n"):
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name, value.strip())
    return fields


def parse_rollup(text: bytes) -> Rss | None:
    """Rss, Swap, Anonymous, Pss_Anon, AnonHugePages and LazyFree of ``smaps_rollup``; None without the first.

    Pages of hugetlbfs are memory, too, but not in the kernel's Rss: they are added.
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
    """The fields of ``/proc/PID/stat`` from the state on; what is before it, the name in parentheses, may hold spaces
    and parentheses itself."""
    return stat.rpartition(b")")[2].decode("ascii", "replace").split()


def parse_flags(stat: bytes) -> int:
    """The kernel's flags of the task; 0 where they are not there."""
    return _number(stat, FLAGS) or 0


def parse_start(stat: bytes) -> int | None:
    """When the process started, in clock ticks after the machine did."""
    return _number(stat, START)


def _number(stat: bytes, place: int) -> int | None:
    fields = stat_fields(stat)
    return int(fields[place]) if len(fields) > place and fields[place].isdigit() else None


def parse_auxv(machine: Machine, data: bytes) -> dict[int, int]:
    """The auxiliary vector: pairs of words up to AT_NULL (getauxval(3))."""
    found: dict[int, int] = {}
    words = machine.words_of(data)
    for key, value in zip(words[::2], words[1::2]):
        if key == 0:
            break
        found.setdefault(key, value)
    return found


def kib(value: str | None) -> int | None:
    """``"1234 kB"`` in bytes, None when it is nothing of the kind."""
    words = (value or "").split()
    if len(words) != 2 or not words[0].isdigit() or words[1] != "kB":
        return None
    return int(words[0]) * 1024
