"""The kernel's figures of a running process's memory. Cheap figures are read each time, expensive ones on request.

Reading ``status`` and ``stat`` takes a few microseconds for a process of any size. The kernel counts their figures per
CPU, so they are exact only to within a few hundred KiB. ``smaps_rollup`` is exact and has the proportional share, but
the kernel must walk all pages for it (proc(5)).
"""

from __future__ import annotations

from contextlib import suppress

from gdbheap.dataclass import dataclass
from gdbheap.errors import NoTarget
from gdbheap.host import procfs
from gdbheap.host.procfs import BREAK, ENDED, START_STACK, STATE, ProcessFolder

__all__ = ["Exact", "Usage", "exact_of", "libraries_of", "run_time", "usage_of"]

# The bytes of ``maps`` that are read. The mapping of brk() is near the start, after the mappings of the program's file.
FIRST_MAPPINGS = 8 << 10
RUNNING = "R"


@dataclass(frozen=True)
class Usage:
    """The memory of one process in bytes, None if unknown, and figures of its activity.

    ``rss``: the resident bytes, which consist of ``anonymous``, ``file`` and ``shared``.
    ``swap``: the swapped bytes.
    ``brk``: the size of the memory from brk().
    ``image``: a value that changes with each exec, as far as /proc shows it; None during an exec.
    ``runs``: whether the first living thread runs or is ready to run (state R).
    """

    rss: int | None
    anonymous: int | None
    file: int | None
    shared: int | None
    swap: int | None
    brk: int | None
    minor_faults: int
    major_faults: int
    threads: int
    image: tuple[str, int, int] | None
    runs: bool


@dataclass(frozen=True)
class Exact:
    """Bytes from ``smaps_rollup``.

    ``rss``: the resident bytes; ``pss``: the resident bytes, with each page divided by the number of processes that map
    it.
    """

    rss: int | None
    pss: int | None


def usage_of(folder: ProcessFolder) -> Usage:
    """Return the memory and activity of a process. Raises NoTarget if it has ended. Raises OSError if it cannot be
    read.
    """
    living = folder.living()
    if living is None:
        raise NoTarget(f"process {folder.pid} has ended")
    place, status = living
    fields = procfs.stat_fields(folder.read(f"{place}stat"))
    names = ("VmRSS", "RssAnon", "RssFile", "RssShmem", "VmSwap")
    rss, anonymous, file, shared, swap = (procfs.kib(status.get(name)) for name in names)
    if len(fields) <= START_STACK or fields[STATE] in ENDED or rss is None:
        raise NoTarget(f"process {folder.pid} has ended")
    program = ""
    with suppress(OSError):
        program = folder.link(f"{place}exe")
    code, stack = int(fields[procfs.START_CODE]), int(fields[START_STACK])
    # During an exec the kernel reports no address of the code.
    image = (program, code, stack) if code else None
    faults = int(fields[procfs.MINOR_FAULTS]), int(fields[procfs.MAJOR_FAULTS])
    threads = status.get("Threads", "")
    count = int(threads) if threads.isdigit() else 1
    resident = (rss, anonymous, file, shared, swap)
    return Usage(*resident, _break_of(folder), *faults, count, image, fields[STATE] == RUNNING)


def _break_of(folder: ProcessFolder) -> int | None:
    """Return the size in bytes of the memory from brk(), which the kernel names ``[heap]``; None if it cannot be
    read.
    """
    try:
        text = folder.read("maps", FIRST_MAPPINGS)
    except OSError:
        return None
    name = BREAK.encode()
    ranges = (line.split(b" ", 1)[0].split(b"-") for line in text.splitlines() if line.endswith(name))
    return sum(int(end, 16) - int(start, 16) for start, end in ranges)


def exact_of(folder: ProcessFolder) -> Exact | None:
    """Return the exact sums, for which the kernel walks all pages. Return None if the kernel refuses, or before Linux
    4.14.
    """
    try:
        fields = procfs.parse_status(folder.read("smaps_rollup"))
    except OSError:
        return None
    return Exact(procfs.kib(fields.get("Rss")), procfs.kib(fields.get("Pss")))


def libraries_of(folder: ProcessFolder) -> frozenset[bytes]:
    """Return the paths of the files from which code is mapped; empty if they cannot be read."""
    try:
        lines = folder.read("maps", procfs.TABLE_LIMIT).splitlines()
    except OSError:
        return frozenset()
    rows = (line.split(None, 5) for line in lines)
    return frozenset(row[5] for row in rows if len(row) == 6 and b"x" in row[1])


def run_time(folder: ProcessFolder) -> int | None:
    """Return how many nanoseconds the process's first thread has run; None if the kernel does not count them."""
    with suppress(OSError, ValueError, IndexError):
        return int(folder.read("schedstat").split()[0])
    return None
