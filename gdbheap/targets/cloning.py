"""Read a process from a copy that never runs (``--clone``), if there is memory for the copy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gdbheap._native import Frozen, Room
from gdbheap.errors import Unsupported, one_line
from gdbheap.host import headroom, procfs
from gdbheap.host.descriptors import links
from gdbheap.host.file_systems import FileSystems
from gdbheap.host.procfs import OWN_DESCRIPTORS, PROC, Named, ProcessFolder, kib
from gdbheap.machines.machine import MACHINES, own_machine
from gdbheap.refusals import refusal
from gdbheap.targets import stopping
from gdbheap.targets.mappings import HUGE_PAGES, MEMORY_FILES, parse_flagged, parse_maps
from gdbheap.targets.process import Preparation, Process, end_copy, room_for
from gdbheap.targets.ranges import Ranges, subtract
from gdbheap.targets.running_memory import find_unanswered

__all__ = ["cloned"]

CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 1 << 21, 1 << 24
# The most descriptors of a process that are read, and the most bytes of the paths of its open files.
MAX_DESCRIPTORS, LINK_BYTES = 100_000, 16 << 20
INSTEAD = "without --clone, gdbheap stops the process while it reads its memory"


def refuse(folder: ProcessFolder) -> None:
    """Raise Unsupported, with the reason, if a copy could harm the process or is not allowed. One such reason is too
    little memory.
    """
    status = folder.status()
    for reason in _reasons(folder, status):
        if reason:
            raise Unsupported(f"--clone: {reason}; {INSTEAD}")


def _reasons(folder: ProcessFolder, status: dict[str, str]) -> Iterator[str | None]:
    if own_machine() is None:
        names = " and ".join(machine.name for machine in MACHINES)
        yield f"gdbheap makes copies only on {names}, and this machine is {os.uname().machine}"
    if folder.is_filtered():
        yield f"process {folder.pid} runs under seccomp, which may refuse the system call or kill the process"
    if status.get("State", "")[:1] in ("T", "t"):
        yield f"process {folder.pid} is already stopped"
    opened = _opened(folder)
    if opened is None:
        yield f"process {folder.pid} has more than {MAX_DESCRIPTORS:,} files open, or very long paths of open files"
        return
    if any("userfaultfd" in link for link in opened):
        yield f"process {folder.pid} handles page faults itself (userfaultfd), and its copy would wait for it"
    yield _served(folder, opened)
    yield _too_many(folder, status)
    yield _too_much(folder, status)


def _opened(folder: ProcessFolder) -> set[str] | None:
    """Return the names of the files that the process has open; None if there are too many to list."""
    found: set[str] = set()
    left = LINK_BYTES
    with suppress(OSError):
        for number, (_name, link) in enumerate(links(folder.path(""), MAX_DESCRIPTORS + 1)):
            if link not in found:
                left -= len(link)
                found.add(link)
            if left < 0 or number == MAX_DESCRIPTORS:
                return None
    return found


def _served(folder: ProcessFolder, opened: set[str]) -> str | None:
    """Return why the exit of a copy might have to wait for another user's program; None if it cannot.

    The kernel ends a copy only after it has written back the files that the copy maps. Closing a file may wait in the
    same way. For a moment the copy has the first 64 files open (close_range(2)).
    """
    systems = FileSystems(folder)
    name = next((link for link in opened if link.startswith("/") and not systems.is_reached(link)), None)
    if name is None:
        name = _served_mapping(folder, systems)
    if name is None:
        return None
    return f"another user's program may serve {one_line(name)} (FUSE): if it does not answer, the copy never ends"


def _served_mapping(folder: ProcessFolder, systems: FileSystems) -> str | None:
    mappings = parse_maps(folder.read("maps", procfs.TABLE_LIMIT))
    for one in find_unanswered(folder, mappings):
        if not _is_kernels(one.path) or systems.is_answered(one.device) is False:
            return one.path
    return None


def _is_kernels(path: str) -> bool:
    """Return whether a file may be in one of the kernel's internal file systems, as a memfd or an eventfd is.

    These file systems are mounted nowhere, so no list of mounts shows them.
    """
    return not path.startswith("/") or path.startswith((*MEMORY_FILES, HUGE_PAGES))


def _too_many(folder: ProcessFolder, status: dict[str, str]) -> str | None:
    if headroom.processes_left(folder.place) < 1:
        return "its control group allows no further process (pids.max)"
    limit = folder.soft_limit("Max processes")
    uid = int(status.get("Uid", "0").split()[0])
    powers = int(status.get("CapEff", "0"), 16)
    if limit is None or uid == 0 or powers & (CAP_SYS_ADMIN | CAP_SYS_RESOURCE):
        return None
    used = headroom.threads_of_user(uid)
    return f"its user has {used} processes and threads, and may have {limit} (RLIMIT_NPROC)" if used >= limit else None


def _too_much(folder: ProcessFolder, status: dict[str, str]) -> str | None:
    """Return the reason if there is too little memory for a copy; None if there is enough.

    Page tables are copied at once. While the copy lives, the kernel copies each page that the process writes, at worst
    all pages.
    """
    own, tables = (kib(status.get(name)) or 0 for name in ("RssAnon", "VmPTE"))
    left = headroom.memory_left(folder.place)
    if left < own + tables:
        has = f"{own >> 20} MiB for private pages and {tables >> 20} MiB for page tables"
        return f"a copy may need {has}, and only {left >> 20} MiB of memory are left"
    promised = headroom.commit_left()
    wanted = sum(kib(status.get(name)) or 0 for name in ("VmData", "VmStk"))
    if promised is not None and promised < wanted:
        return (
            f"vm.overcommit_memory is 2, which allows only {promised >> 20} MiB more, but a copy needs"
            f" {wanted >> 20} MiB"
        )
    return None


@contextmanager
def cloned(named: Named, limit: float | None = None, copies: bool = False) -> Iterator[Process]:
    """Yield the process as it was at one moment. The process is read from a copy, which is ended after the ``with``
    block.

    ``limit``: the most seconds for which the process may be stopped; None for no limit. ``copies``: read all of the
    copy into gdbheap's own memory, if there is room, and end the copy at once. The process itself is stopped only while
    the kernel copies its page tables, and while its mappings and residency are read. ``stopped_seconds`` says for how
    long. Raises the errors of ``stopped``, and Unsupported if no copy can be made.
    """
    folder = refusal.open_folder(named)
    preparation = stopping.when_untraced(folder, lambda: Preparation(folder))
    preparation.load_files()
    try:
        refuse(folder)
        space = room_for(folder) if copies else None
    except OSError as error:
        raise refusal.explain(folder, error) from None
    with stopping.undisturbed():
        copy = _copy(folder, limit)
        try:
            process = _process(copy, preparation, space)
        except BaseException:
            copy.end()
            raise
    try:
        yield process
    finally:
        process.warnings += end_copy(copy)
        process.stopped_seconds = copy.seconds


def _copy(folder: ProcessFolder, limit: float | None) -> Frozen:
    try:
        return stopping.patiently(folder, lambda: Frozen(folder, limit))
    except RuntimeError as error:
        raise Unsupported(f"--clone: {error}; {INSTEAD}") from None
    except TimeoutError as error:
        raise stopping.not_stopped(folder, limit, error) from None
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.ENOMEM):
            raise Unsupported(f"--clone: the kernel refuses the copy ({error.strerror}); {INSTEAD}") from None
        raise refusal.explain(folder, error) from None


def _process(copy: Frozen, preparation: Preparation, space: Room | None) -> Process:
    folder = preparation.folder

    def books_read(process: Process) -> Ranges:
        copy.let_go()
        process.stopped_seconds = copy.seconds
        if copy.expired:
            raise stopping.let_go_early(folder, copy.seconds or 0)
        return _missing(process, copy)

    try:
        return Process(
            folder, copy.threads, preparation, holder=copy, memory_of=copy, books_read=books_read, room=space
        )
    except OSError as error:
        raise refusal.explain(folder, error) from None
    except RuntimeError as error:
        raise Unsupported(f"--clone: {error}; {INSTEAD}") from None


def _missing(process: Process, copy: Frozen) -> Ranges:
    """Return the ranges that the copy lacks, because the process excluded them (MADV_DONTFORK, MADV_WIPEONFORK). Add a
    warning about them.
    """
    with open(f"{PROC}/{OWN_DESCRIPTORS}/{copy.descriptor}/smaps", "rb") as stream:
        smaps = stream.read(procfs.TABLE_LIMIT)
    there = list(parse_maps(smaps).ranges())
    own = [(mapping.start, mapping.end) for mapping in process.mappings if mapping.private and mapping.readable]
    missing = subtract(own, subtract(there, parse_flagged(smaps, b"wf")))
    if missing:
        process.partial = True
        process.warnings.append(
            f"{sum(end - start for start, end in missing):,} bytes in {len(missing)} ranges are not in the copy"
            " (MADV_DONTFORK, MADV_WIPEONFORK): their contents are missing"
        )
    return missing
