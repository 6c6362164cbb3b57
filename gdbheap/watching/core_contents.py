"""Decide which memory gdb may read for a core, and mark memory that gdb could not read as absent in the core.

gdb reads whole mappings, as a thread of the process would. A read of shared memory would add pages to the process, and
for reserved memory gdb would write zeros. So gdb gets commands that say which memory it may read (``mem LOW HIGH ro``).
Without such a command gdb may read all memory.
"""

from __future__ import annotations

import os
import re
import select
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from gdbheap.errors import Unsupported
from gdbheap.host.headroom import memory_left
from gdbheap.host.mounts import device_name
from gdbheap.host.procfs import TABLE_LIMIT, ProcessFolder
from gdbheap.machines import image
from gdbheap.targets.core import read_segment_table
from gdbheap.targets.mappings import Mapping, Mappings, parse_smaps
from gdbheap.targets.ranges import Ranges, containing, joined
from gdbheap.targets.running_memory import find_unanswered
from gdbheap.text import named

__all__ = ["Contents", "find_contents", "mark_absent"]

# Reading a reserved mapping of at most this size costs one page of page tables. Listing each such mapping separately
# would slow gdb down.
SMALL = 1 << 20
# The number of pages that one page of page tables describes.
PAGES_OF_TABLE = 512
_UNREAD = re.compile(r"Memory read failed for corefile section, \d+ bytes at 0x([0-9a-f]+)")


class Contents(NamedTuple):
    """The memory of a process that belongs in its core.

    ``readable``: the ranges that gdb may read.
    ``zeros``: reserved ranges that contain only zeros, because they were never touched.
    """

    readable: Ranges
    zeros: Ranges

    @property
    def bytes(self) -> int:
        """The largest number of bytes that this memory can take in a core."""
        return sum(end - start for start, end in self.readable)

    @property
    def commands(self) -> str:
        """The commands that tell gdb which memory it may read."""
        return "".join(f"mem {start:#x} {end:#x} ro\n" for start, end in self.readable)


def find_contents(process: ProcessFolder) -> Contents:
    """Return the memory of a process that belongs in its core now. Raises OSError, Unsupported."""
    mappings = parse_smaps(process.read("smaps", TABLE_LIMIT))
    _check_answered(process, mappings)
    _check_tables(process, mappings)
    readable = [(one.start, one.end) for one in mappings if _is_there(one)]
    zeros = [(one.start, one.end) for one in mappings if one.untouched and one.private and not one.is_kernels]
    return Contents(joined(readable), joined(zeros))


def _is_there(mapping: Mapping) -> bool:
    """Return whether gdb may read a whole mapping. A shared mapping must be completely resident, so that reading adds
    no memory to the process. For private mappings, additional pages of zeros and of files are accepted."""
    if not mapping.private:
        return mapping.rss == mapping.size
    is_small = mapping.anonymous and mapping.size <= SMALL
    return is_small or mapping.rss != 0 or mapping.swap != 0


def _check_tables(process: ProcessFolder, mappings: Mappings) -> None:
    """Raise Unsupported if reading would make the kernel create too many page tables: more than half of the memory that
    is left.

    gdb also reads memory that the process has reserved but never used. The page tables for this memory might make the
    kernel kill the process."""
    absent = sum(max(0, one.size - (one.rss or 0) - (one.swap or 0)) for one in mappings if _is_there(one))
    tables = absent // PAGES_OF_TABLE
    if tables > SMALL and tables > memory_left(process.pid) // 2:
        raise Unsupported(
            f"gdb would read {absent:,} bytes that the process has reserved but never used: their page tables would"
            f" take {tables:,} bytes, more than half of the memory that the process may still use"
        )


def _check_answered(process: ProcessFolder, mappings: Mappings) -> None:
    """Raise Unsupported if a mapped file is served by another user's program (FUSE). The program may never answer; gdb
    would then wait, with the process stopped.
    """
    for mapping in find_unanswered(process, mappings, _kernel_devices()):
        raise Unsupported(f"gdb would wait for {named(mapping.name)}, a file that another user's program serves (FUSE)")


def _kernel_devices() -> set[str]:
    """Return the devices of two internal mounts of the kernel, such as "00:0e".

    One mount has anonymous inodes (epoll, eventfd, io_uring), the other one huge pages without a file (hugetlbfs). The
    kernel itself serves both, so that a read never waits for another program.
    """
    with closing(select.epoll()) as poll:
        found = {device_name(os.fstat(poll.fileno()).st_dev)}
    try:
        number = os.memfd_create("gdbheap", os.MFD_CLOEXEC | os.MFD_HUGETLB)
    except OSError:
        return found
    try:
        return {*found, device_name(os.fstat(number).st_dev)}
    finally:
        os.close(number)


def mark_absent(path: str, contents: Contents, said: str) -> None:
    """Truncate each segment of a core at the first address that gdb could not read. After it, gdb wrote only zeros.

    ``said``: gdb's messages. Raises NoTarget, Unsupported, OSError.
    """
    unread = sorted(int(place, 16) for place in _UNREAD.findall(said))
    with open(path, "r+b") as stream:
        table, _count, segments = read_segment_table(stream, path)
        for index, segment in enumerate(segments):
            size = _size_read(segment, contents, unread)
            if segment.type == image.PT_LOAD and size is not None:
                stream.seek(table + index * image.SEGMENT_SIZE + image.FILE_SIZE_OFFSET)
                stream.write(size.to_bytes(8, "little"))


def _size_read(segment: image.Segment, contents: Contents, unread: Sequence[int]) -> int | None:
    """Return how many bytes of a segment gdb has read. Return None if gdb has read all bytes, or if the segment
    contains only zeros.
    """
    start, end = segment.address, segment.address + segment.memory_size
    if containing(contents.zeros, start):
        return None
    place = bisect_left(unread, start)
    if place < len(unread) and unread[place] < end:
        return unread[place] - start
    return None if containing(contents.readable, start) else 0
