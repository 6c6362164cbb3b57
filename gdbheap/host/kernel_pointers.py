"""Addresses that a program gave to the kernel, which returns them with events.

epoll (proc_pid_fdinfo(5)) and timers (proc_pid_timers(5)) hold such addresses. An address there may be the only pointer
to a block. The kernel does not show the addresses in requests of io_uring.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import field

from gdbheap._native import watched_by_epolls
from gdbheap.dataclass import dataclass
from gdbheap.host.descriptors import links
from gdbheap.host.procfs import PROC

__all__ = ["KernelPointers", "kernel_pointers"]

MAX_DESCRIPTORS, TABLE_BYTES = 100_000, 64 << 20
EPOLL, IO_URING = "anon_inode:[eventpoll]", "anon_inode:[io_uring]"
_EXPIRING = re.compile(rb"^signal: \d+/(?:0x)?([0-9a-f]+)$", re.MULTILINE)


@dataclass
class KernelPointers:
    """The values that a process registered with ``epoll`` and with ``timers``. A value may be an address or any number.

    ``is_whole``: False if some of the values that the kernel shows could not be read.
    """

    epoll: list[int] = field(default_factory=list)
    timers: list[int] = field(default_factory=list)
    is_whole: bool = True


def kernel_pointers(place: str | None, proc: str = PROC) -> KernelPointers:
    """Return the values that a process gave to the kernel. ``place``: its folder below /proc, None if it has none."""
    if place is None:
        return KernelPointers(is_whole=False)
    folder, found = f"{proc}/{place}", KernelPointers()
    found.timers = _timers(f"{folder}/timers")
    epolls, count = [], 0
    try:
        for name, what in links(folder, MAX_DESCRIPTORS):
            count += 1
            if what == EPOLL:
                epolls.append(int(name))
            found.is_whole &= what != IO_URING
        found.is_whole &= count < MAX_DESCRIPTORS
        if epolls:
            found.epoll, is_all = watched_by_epolls(folder, epolls)
            found.is_whole &= is_all
    except OSError:
        # This also happens if a thread of the process holds the lock of an epoll for ever.
        found.is_whole = False
    return found


def _timers(path: str) -> list[int]:
    with suppress(OSError), open(path, "rb") as stream:
        return sorted({int(number, 16) for number in _EXPIRING.findall(stream.read(TABLE_BYTES))})
    return []
