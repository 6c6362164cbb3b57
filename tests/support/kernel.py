"""The kernel's figures of a process or a core, read without gdbheap for the tests' side of each comparison."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = 4096
PRESENT, SWAPPED = 1 << 63, 1 << 62
MAP_LINE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) (\S+) (\d+) *(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Mapped:
    """One line of /proc/PID/maps."""

    start: int
    end: int
    perms: str
    inode: int
    path: str


def maps(pid: int) -> list[Mapped]:
    """Return the mappings of a process, except [vsyscall], which belongs to the kernel."""
    lines = MAP_LINE.findall(Path(f"/proc/{pid}/maps").read_text())
    found = [Mapped(int(a, 16), int(b, 16), perms, int(inode), path) for a, b, perms, _, _, inode, path in lines]
    return [mapped for mapped in found if mapped.path != "[vsyscall]"]


def rollup(pid: int) -> tuple[int, int]:
    """Return (Rss, Swap) of /proc/PID/smaps_rollup in bytes; pages of hugetlbfs, which are not in Rss, are added."""
    return sum(in_rollup(pid, key) for key in ("Rss", "Private_Hugetlb", "Shared_Hugetlb")), in_rollup(pid, "Swap")


def resident_inside(pid: int, start: int, size: int) -> int:
    """Return the bytes of the resident pages that lie completely in [start, start + size)."""
    first, last = -(-start // PAGE), (start + size) // PAGE
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        entries = os.pread(file.fileno(), max(0, last - first) * 8, first * 8)
    return PAGE * sum(bool(entry & PRESENT) for (entry,) in struct.iter_unpack("<Q", entries))


def read(pid: int, address: int, size: int) -> bytes:
    """Return bytes of a process's memory."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        data = os.pread(file.fileno(), size, address)
    assert len(data) == size, hex(address)
    return data


def read_u64(pid: int, address: int) -> int:
    """Return a little-endian word of a process's memory."""
    return int(struct.unpack("<Q", read(pid, address, 8))[0])


@dataclass(frozen=True)
class Segment:
    """A PT_LOAD of a core."""

    start: int
    size: int
    offset: int
    file_size: int

    @property
    def file_end(self) -> int:
        """Return the end of the segment's bytes in the file."""
        return self.offset + self.file_size


def segments(core: Path) -> list[Segment]:
    """Return the PT_LOADs of a 64-bit little-endian core."""
    data = core.read_bytes()[: 1 << 20]
    offset, (size, count) = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQQQ", data, offset + i * size) for i in range(count)]
    return [Segment(h[3], h[6], h[2], h[5]) for h in headers if h[0] == 1]


def data_bytes(core: Path, offset: int, size: int) -> int:
    """Return how many of the bytes [offset, offset + size) of the file are not in holes of the file."""
    total, end, place = 0, offset + size, offset
    with open(core, "rb") as file:
        while place < end:
            try:
                start = os.lseek(file.fileno(), place, os.SEEK_DATA)
            except OSError:  # no data up to the end of the file
                return total
            place = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            total += max(0, min(place, end) - start)
    return total


def anonymous(pid: int) -> int:
    """Return Anonymous of /proc/PID/smaps_rollup in bytes: RssAnon, counted page by page."""
    return in_rollup(pid, "Anonymous")


def in_rollup(pid: int, key: str) -> int:
    """Return a figure of /proc/PID/smaps_rollup in bytes."""
    found = re.search(rf"^{key}:\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found, key
    return int(found[1]) * 1024


FRAME = (1 << 55) - 1
ZERO_FLAG = 1 << 24


@dataclass(frozen=True)
class Page:
    """The pagemap entry of one page, and kpageflags of its frame."""

    is_there: bool
    is_swapped: bool
    is_zero: bool


def pages(pid: int, start: int, end: int) -> list[Page]:
    """Return the pages of [start, end), entry by entry. Skip the test if frames are hidden (not root)."""
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        entries = os.pread(file.fileno(), (end - start) // PAGE * 8, start // PAGE * 8)
    return [_page(entry) for (entry,) in struct.iter_unpack("<Q", entries)]


def _page(entry: int) -> Page:
    flags = frame_flags(entry & FRAME) if entry & PRESENT else 0
    is_zero = bool(flags & ZERO_FLAG)
    return Page(bool(entry & PRESENT) and not is_zero, bool(entry & SWAPPED), is_zero)


@functools.lru_cache(1 << 20)
def frame_flags(frame: int) -> int:
    """Return the flags of a frame from /proc/kpageflags."""
    try:
        with open("/proc/kpageflags", "rb", buffering=0) as file:
            data = os.pread(file.fileno(), 8, frame * 8)
    except OSError:
        data = b""
    if not frame or len(data) != 8:
        pytest.skip("the kernel does not show frames of memory here (that takes root)")
    return int(struct.unpack("<Q", data)[0])


PROCESS_MADVISE, MADV_PAGEOUT = 440, 21


def page_out(pid: int, rng: random.Random) -> None:
    """Write the end of each anonymous mapping to swap; skip the test if there is no swap."""
    if len(Path("/proc/swaps").read_text().splitlines()) < 2:
        pytest.skip("no swap here")
    own = [m for m in maps(pid) if m.perms == "rw-p" and not m.inode and not m.path.startswith("[stack")]
    process, libc = os.pidfd_open(pid), ctypes.CDLL(None, use_errno=True)
    try:
        for mapped in own:
            start = rng.randrange(mapped.start, mapped.end, PAGE)
            vector = struct.pack("<QQ", start, mapped.end - start)
            done = libc.syscall(PROCESS_MADVISE, process, vector, ctypes.c_ulong(1), MADV_PAGEOUT, 0)
            assert done == mapped.end - start, os.strerror(ctypes.get_errno())
    finally:
        os.close(process)
