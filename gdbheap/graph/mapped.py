"""Find memory that a program mapped itself, by the block that holds the memory's address and size.

The block may be an ``mmap.mmap`` object, a memory-mapped file of Arrow, a mapped storage of torch, or any other block.
The address lies next to the size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.targets.mappings import MEMORY_FILES, Mapping
from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.target import Target

__all__ = ["MappedMemory", "find_mapped", "mapped_files", "shared_ranges", "written_files"]

# Mappings below MIN_BYTES are left out. If the larger mappings total less than MIN_TOGETHER, or less than 1/MIN_OF_RSS
# of RSS, gdbheap does not look for their owners.
MIN_BYTES, MIN_TOGETHER, MIN_OF_RSS = 64 << 10, 1 << 20, 100
# The most bytes of resident shared memory that are searched for pointers; this takes at most a second.
MAX_SHARED = 1 << 30
# The most bytes of mapped files that are read when blocks seem to be lost.
MAX_FILES = 1 << 30
Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class MappedMemory:
    """Memory [``address``, ``end``), in whole pages, whose address and size a block holds.

    ``block``: the address of that block. ``name``: the name of the mapped file, "" for anonymous memory. ``shared``:
    other processes may map the same pages and see changes to them.
    """

    address: int
    end: int
    block: int
    name: str
    shared: bool

    @property
    def size(self) -> int:
        """The number of bytes from the start to the end of the last page."""
        return self.end - self.address


def mapped_files(target: Target) -> Ranges:
    """Return shared memory and mapped files outside loaded objects. Adjacent parts of one file are one range."""
    found: Ranges = []
    last: Mapping | None = None
    for mapping in target.mappings:
        if mapping.anonymous and mapping.private or mapping.is_kernels or not mapping.readable:
            continue
        if target.object_of(mapping.start) is not None:
            continue
        if last is not None and _follows(last, mapping):
            found[-1] = found[-1][0], mapping.end
        else:
            found.append((mapping.start, mapping.end))
        last = mapping
    return found


def shared_ranges(target: Target) -> tuple[Ranges, bool]:
    """Return the ranges of writable shared memory without a file on a disk, ascending, and whether the list is
    complete.

    The smallest mappings are taken first, until MAX_SHARED bytes are reached.
    """
    pages, left, found = target.pages, MAX_SHARED, []
    every = [one for one in target.mappings if one.writable and one.readable and _is_shared(one)]
    for mapping in sorted(every, key=lambda one: one.size):
        left -= mapping.size if pages is None else pages.count(mapping.start, mapping.end).resident
        if left >= 0:
            found.append((mapping.start, mapping.end))
    return sorted(found), left >= 0


def written_files(target: Target) -> list[tuple[Mapping, Ranges]]:
    """Return the writable mapped files on a disk outside loaded objects, each with its resident ranges.

    The smallest mappings are taken first, until MAX_FILES bytes are reached.
    """
    unseen = {file.path for file, _ranges in target.unseen_data()}
    every = [
        (mapping, _resident(target, mapping))
        for mapping in target.mappings
        if mapping.writable and mapping.readable and not mapping.is_kernels and not _is_shared(mapping)
        if not mapping.anonymous and mapping.path not in unseen and target.object_of(mapping.start) is None
    ]
    left, found = MAX_FILES, []
    for mapping, ranges in sorted(every, key=lambda one: sum(end - start for start, end in one[1])):
        left -= sum(end - start for start, end in ranges)
        if ranges and left >= 0:
            found.append((mapping, ranges))
    return found


def _resident(target: Target, mapping: Mapping) -> Ranges:
    pages = target.pages
    if pages is None:
        return [(mapping.start, mapping.end)]
    runs = pages.runs(mapping.start, mapping.end)
    return joined([(run.start, run.end) for run in runs if pages.count(run.start, run.end).resident])


def _is_shared(mapping: Mapping) -> bool:
    return mapping.is_shared_memory() and not mapping.is_kernels


def _follows(before: Mapping, mapping: Mapping) -> bool:
    """Return whether a mapping continues ``before`` both in memory and in the file."""
    same = (before.inode, before.device, before.path) == (mapping.inode, mapping.device, mapping.path)
    return same and before.end == mapping.start and before.offset + before.size == mapping.offset


def find_mapped(
    target: Target, heaps: _native.Heaps, candidates: Iterable[tuple[int, int]], progress: Progress | None = None
) -> list[MappedMemory]:
    """Return the memory in ``candidates`` whose address and size lie next to each other in a block of ``heaps``.

    Such memory is accepted if it begins or ends at the boundary of a mapping or of other accepted memory. The result is
    ascending and disjoint.
    """
    ranges = sorted((start, end) for start, end in candidates if end - start >= MIN_BYTES)
    whole = sum(end - start for start, end in ranges)
    if whole < max(MIN_TOGETHER, (target.rss.bytes or 0) // MIN_OF_RSS):
        return []
    page = target.machine.page
    rows = _native.find_mapped(heaps, ranges, page, progress)
    largest: dict[int, tuple[int, bool, int]] = {}
    for block, place, address, size in rows:
        # A block with the size right after the address is preferred. In a view, such as a Py_buffer, other fields lie
        # between address and size.
        found = address + -(-size // page) * page, _word(target, place + target.machine.word) == size, block
        largest[address] = max(found, largest.get(address, found), key=lambda row: row[:2])
    return list(_proven(target, ranges, {address: (block, end) for address, (end, _own, block) in largest.items()}))


def _word(target: Target, address: int) -> int | None:
    try:
        return target.space.word(address)
    except Fault:
        return None


def _proven(target: Target, ranges: Ranges, largest: dict[int, tuple[int, int]]) -> Iterator[MappedMemory]:
    """Yield the memory in ``largest`` that begins or ends at the boundary of a mapping, or of other memory in the
    result.

    The kernel joins neighbouring mappings. So a mapping between two others may have no boundary of its own in the list
    of mappings.
    """
    starts = {mapping.start for mapping in target.mappings} | {start for start, _end in ranges}
    ends = {mapping.end for mapping in target.mappings} | {end for _start, end in ranges}
    by_end: defaultdict[int, list[int]] = defaultdict(list)
    for address, (_block, end) in largest.items():
        by_end[end].append(address)
    fitting = [address for address, (_block, end) in largest.items() if address in starts or end in ends]
    accepted: set[int] = set()
    while fitting:
        address = fitting.pop()
        if address in largest and address not in accepted:
            accepted.add(address)
            # Memory that begins where this memory ends, or ends where it begins, fits too.
            fitting += [largest[address][1], *by_end.pop(address, [])]
    last = 0
    for address in sorted(accepted):
        block, end = largest[address]
        if address >= last and end - address >= MIN_BYTES:
            yield _named(target, address, end, block)
            last = end


def _named(target: Target, address: int, end: int, block: int) -> MappedMemory:
    mapping = target.mappings.find(address)
    if mapping is None or mapping.anonymous and mapping.private:
        return MappedMemory(address, end, block, "", False)
    # A core does not say which mappings are shared. Files of shared memory are certainly shared; other files may be.
    is_told = not mapping.private or not mapping.inode and mapping.path.startswith(MEMORY_FILES)
    return MappedMemory(address, end, block, mapping.name, is_told)
