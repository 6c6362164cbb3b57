"""Addresses that a program gave to the kernel, which hands them back with an event: of epoll (proc_pid_fdinfo(5)) and
of timers (proc_pid_timers(5)). Those of requests to io_uring are not told."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field

from gdbheap.host.descriptors import links
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
        opened = links(folder, MAX_DESCRIPTORS)
    except OSError:
        return KernelPointers(timers=found.timers, is_whole=False)
    found.epoll = [
        one for name, what in opened if what == EPOLL for one in _numbers(f"{folder}/fdinfo/{name}", _WATCHED)
    ]
    found.is_whole = len(opened) < MAX_DESCRIPTORS and all(what != IO_URING for _name, what in opened)
    return found


def _numbers(path: str, pattern: re.Pattern[bytes]) -> list[int]:
    with suppress(OSError), open(path, "rb") as stream:
        return [int(number, 16) for number in pattern.findall(stream.read(TABLE_BYTES))]
    return []
