"""Addresses that a program gave to the kernel, which hands them back with an event: of epoll (proc_pid_fdinfo(5)) and
of timers (proc_pid_timers(5)). Those of requests to io_uring are not told."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field

from gdbheap.host.procfs import PROC

__all__ = ["KernelPointers", "kernel_pointers"]

MAX_DESCRIPTORS, TABLE_BYTES = 100_000, 64 << 20
EPOLL, IO_URING = "anon_inode:[eventpoll]", "anon_inode:[io_uring]"
_WATCHED = re.compile(rb"^tfd: .* data: *([0-9a-f]+)", re.MULTILINE)
_EXPIRING = re.compile(rb"^signal: \d+/(?:0x)?([0-9a-f]+)$", re.MULTILINE)


@dataclass
class KernelPointers:
    """What the targets of ``epoll`` and ``timers`` carry, addresses or not; ``is_whole``: whether the kernel has no
    others, as far as it says."""

    epoll: list[int] = field(default_factory=list)
    timers: list[int] = field(default_factory=list)
    is_whole: bool = True


def kernel_pointers(place: str | None, proc: str = PROC) -> KernelPointers:
    """Return those of a process. ``place``: its folder below /proc, None where there is none."""
    if place is None:
        return KernelPointers(is_whole=False)
    folder, found = f"{proc}/{place}", KernelPointers()
    found.timers = _numbers(f"{folder}/timers", _EXPIRING)
    try:
        names = os.listdir(f"{folder}/fd")
    except OSError:
        return KernelPointers(timers=found.timers, is_whole=False)
    for name in names[:MAX_DESCRIPTORS]:
        with suppress(OSError):
            what = os.readlink(f"{folder}/fd/{name}")
            found.is_whole &= what != IO_URING
            found.epoll += _numbers(f"{folder}/fdinfo/{name}", _WATCHED) if what == EPOLL else []
    found.is_whole &= len(names) <= MAX_DESCRIPTORS
    return found


def _numbers(path: str, pattern: re.Pattern[bytes]) -> list[int]:
    with suppress(OSError), open(path, "rb") as stream:
        return [int(number, 16) for number in pattern.findall(stream.read(TABLE_BYTES))]
    return []
