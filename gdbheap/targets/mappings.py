"""The mappings of an address space, as ``/proc/PID/maps`` and ``smaps`` list them.

One line of ``maps``, and the two lines of ``smaps`` that are read in addition (see proc_pid_maps(5))::

    7f1c8a000000-7f1c8a021000 rw-p 00000000 00:00 0       [anon:arena]
    Rss:                 132 kB
    Swap:                  0 kB

This module parses text; it opens nothing.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

from gdbheap.dataclass import dataclass
from gdbheap.errors import one_line
from gdbheap.machines.machine import KERNEL_START
from gdbheap.targets.ranges import Ranges, joined

KIB = 1024
HUGE_PAGES = "/anon_hugepage (deleted)"
# Files that are only memory, by the kernel's names.
MEMORY_FILES = ("/dev/zero (deleted)", "/SYSV", "/memfd:", "/dev/shm/", "/[aio]")
# "[vvar" also matches [vvar_vclock], which exists since Linux 6.13.
KERNELS = ("[vdso]", "[vvar", "[uprobes]")

_HEADER = rb"([0-9a-f]+)-([0-9a-f]+) ([r-][w-][x-][ps]) ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) (\d+)[ \t]*([^\n]*)"
_MAPS_LINE = re.compile(rb"^" + _HEADER + rb"$", re.MULTILINE)
_SMAPS_LINE = re.compile(rb"^(?:" + _HEADER + rb"|(Rss|Swap|(?:Private|Shared)_Hugetlb):\s+(\d+) kB)$", re.MULTILINE)
_FLAGS_LINE = re.compile(rb"^(?:([0-9a-f]+)-([0-9a-f]+) |VmFlags:(.*)$)", re.MULTILINE)
_WRITTEN_LINE = re.compile(rb"^(?:([0-9a-f]+)-([0-9a-f]+) |Anonymous:\s+(\d+) kB$)", re.MULTILINE)
_HUGE_LINE = re.compile(rb"^(?:([0-9a-f]+)-([0-9a-f]+) |AnonHugePages:\s+(\d+) kB$)", re.MULTILINE)
_LAZY_LINE = re.compile(rb"^(?:([0-9a-f]+)-([0-9a-f]+) |LazyFree:\s+(\d+) kB$)", re.MULTILINE)
_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mapping:
    """One mapping. ``start``, ``end`` and ``offset`` (in the file) are bytes; ``perms`` is like ``rw-p``.

    ``path`` is ``""`` for unnamed anonymous memory, otherwise the kernel's text, such as ``[heap]``, ``/usr/lib/x.so``
    or ``/x (deleted)``. ``rss`` and ``swap`` are bytes from ``smaps``; None if ``smaps`` was not read (the target's
    pages show residency too). A mapping of a core has neither ``device`` nor ``inode`` (``00:00`` and 0).
    """

    start: int
    end: int
    perms: str
    offset: int
    device: str
    inode: int
    path: str
    rss: int | None = None
    swap: int | None = None

    @property
    def size(self) -> int:
        """The number of bytes from start to end."""
        return self.end - self.start

    @property
    def readable(self) -> bool:
        """Whether the program itself may read the mapping."""
        return self.perms[0] == "r"

    @property
    def writable(self) -> bool:
        """Whether the program itself may write to the mapping."""
        return self.perms[1] == "w"

    @property
    def executable(self) -> bool:
        """Whether the program may run code in the mapping."""
        return self.perms[2] == "x"

    @property
    def is_kernels(self) -> bool:
        """Whether the mapping belongs to the kernel itself, and not to a program or library."""
        return self.path.startswith(KERNELS)

    @property
    def private(self) -> bool:
        """Whether the process's writes to the mapping stay in the process (copy on write)."""
        return self.perms[3] == "p"

    @property
    def anonymous(self) -> bool:
        """Whether no file backs the mapping. It then has no inode and no path, or consists of huge pages mapped without
        a file (MAP_HUGETLB). System V memory may have inode 0, but has a path.
        """
        return (self.inode == 0 and not self.path.startswith("/")) or self.path == HUGE_PAGES

    def is_shared_memory(self, devices: Collection[str] = ()) -> bool:
        """Return whether the mapping is shared and no file on a disk backs it.

        ``devices``: the devices of memory-only file systems.
        """
        is_memory = not self.path.startswith("/") or self.path.startswith(MEMORY_FILES) or self.device in devices
        return not self.private and (self.anonymous or is_memory)

    @property
    def untouched(self) -> bool:
        """Whether the mapping is anonymous and has no pages according to ``smaps``. False if ``smaps`` was not read."""
        return self.anonymous and self.rss == 0 and self.swap == 0

    @property
    def name(self) -> str:
        """The path on one printable line, or ``[anonymous]``; a path may contain any byte but zero."""
        return one_line(self.path) or "[anonymous]"

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.end


class Mappings:
    """The mappings of an address space, in address order and without overlaps, as the kernel keeps them.

    Mappings above the addresses of programs are left out, such as [vsyscall], which belongs to no process.
    """

    def __init__(self, mappings: Iterable[Mapping] = ()) -> None:
        own = (mapping for mapping in mappings if mapping.start < KERNEL_START)
        self._mappings = sorted(own, key=lambda mapping: mapping.start)
        self._starts = [mapping.start for mapping in self._mappings]

    def __iter__(self) -> Iterator[Mapping]:
        return iter(self._mappings)

    def __len__(self) -> int:
        return len(self._mappings)

    def __getitem__(self, index: int) -> Mapping:
        return self._mappings[index]

    def index(self, address: int) -> int:
        """Return the index of the last mapping that starts at or below ``address``; -1 if there is none."""
        return bisect_right(self._starts, address) - 1

    def find(self, address: int) -> Mapping | None:
        """Return the mapping that contains ``address``, or None."""
        index = self.index(address)
        if index < 0 or address not in self._mappings[index]:
            return None
        return self._mappings[index]

    @cached_property
    def writable_anonymous(self) -> Ranges:
        """The ranges (start, end) of writable anonymous memory, with adjacent ranges joined."""
        return joined([(one.start, one.end) for one in self._mappings if one.anonymous and one.writable])

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges (start, end) of all mappings, with adjacent mappings joined. In a fragmented address space
        these are far fewer than the mappings.
        """
        return joined([(mapping.start, mapping.end) for mapping in self._mappings])


def parse_maps(text: bytes) -> Mappings:
    """Return the mappings of ``/proc/PID/maps``. A line that is not a mapping is skipped."""
    return Mappings(_mapping(match.groups()) for match in _MAPS_LINE.finditer(text))


def parse_smaps(text: bytes) -> Mappings:
    """Return the mappings of ``/proc/PID/smaps``, with ``rss`` and ``swap`` in bytes (None if the line is missing).

    The kernel's Rss does not include pages of hugetlbfs; they are added.
    """
    found: list[tuple[tuple[bytes | None, ...], dict[bytes, int]]] = []
    for match in _SMAPS_LINE.finditer(text):
        groups = match.groups()
        if groups[0] is not None:
            found.append((groups[:7], {}))
        elif found:
            found[-1][1].setdefault(groups[7], int(groups[8]) * KIB)
    return Mappings(_mapping(header, _rss(sizes), sizes.get(b"Swap")) for header, sizes in found)


def _rss(sizes: dict[bytes, int]) -> int | None:
    rss = sizes.get(b"Rss")
    return None if rss is None else rss + sizes.get(b"Private_Hugetlb", 0) + sizes.get(b"Shared_Hugetlb", 0)


def parse_locked(text: bytes) -> Ranges:
    """Return the ranges of ``/proc/PID/smaps`` that are locked into memory, ascending."""
    return parse_flagged(text, b"lo")


def parse_lazy(text: bytes) -> list[tuple[int, int, int]]:
    """Return (start, end, bytes that MADV_FREE freed) of the mappings in ``/proc/PID/smaps`` with such pages."""
    return _sizes(_LAZY_LINE, text)


def parse_huge(text: bytes) -> list[tuple[int, int, int]]:
    """Return (start, end, bytes in huge pages) of the mappings in ``/proc/PID/smaps`` with transparent huge pages."""
    return _sizes(_HUGE_LINE, text)


def parse_written(text: bytes) -> list[tuple[int, int, int]]:
    """Return (start, end, anonymous bytes) of the mappings in ``/proc/PID/smaps`` with anonymous pages.

    In a private mapping of a file, these are the pages that the process wrote to.
    """
    return _sizes(_WRITTEN_LINE, text)


def _sizes(line: re.Pattern[bytes], text: bytes) -> list[tuple[int, int, int]]:
    found, place = [], (0, 0)
    for match in line.finditer(text):
        if match[1] is not None:
            place = (int(match[1], 16), int(match[2], 16))
        elif size := int(match[3]) * KIB:
            found.append((*place, size))
    return found


def parse_flagged(text: bytes, flag: bytes) -> Ranges:
    """Return the ranges of mappings in ``/proc/PID/smaps`` that have a two-letter flag (``VmFlags`` in proc(5)),
    ascending.
    """
    found: Ranges = []
    place = (0, 0)
    for match in _FLAGS_LINE.finditer(text):
        if match[1] is not None:
            place = (int(match[1], 16), int(match[2], 16))
        elif flag in match[3].split():
            found.append(place)
    return joined(found)


def _mapping(header: tuple[bytes | None, ...], rss: int | None = None, swap: int | None = None) -> Mapping:
    start, end, perms, offset, device, inode, path = (field or b"" for field in header)
    where = int(start, 16), int(end, 16), perms.decode(), int(offset, 16)
    return Mapping(*where, device.decode(), int(inode), _path(path), rss, swap)


def _path(raw: bytes) -> str:
    r"""Return a path with ``\012`` turned into a line break, the only character that ``maps`` escapes."""
    return os.fsdecode(_ESCAPE.sub(lambda match: b"\n" if match[1] == b"012" else match[0], raw))
