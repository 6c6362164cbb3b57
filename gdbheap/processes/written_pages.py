"""Classify the pages that a process shared with its parent at the fork but now has alone, by the kind of write.

The kernel copies a page for the first process that writes to it. Only one process then maps the copy (bit 56 of
pagemap). If the page existed at the fork and differs from the parent's page, the difference was written since. If it is
equal, the written bytes were restored. An equal page with Python objects has two possible causes. Reference counts on
it went up while an object was used, and down again. Or the collector, which tracks objects on the page, has run since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from gdbheap import _native
from gdbheap.contents.python.objects.collector import collector_at, count_frozen
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, or_none
from gdbheap.heap import Heap
from gdbheap.host.procfs import ProcessFolder, exclusive_pages
from gdbheap.layout import cpython
from gdbheap.targets.process import Process, executable, is_readable
from gdbheap.targets.ranges import Ranges, intersect, joined, subtract
from gdbheap.targets.target import AT_RANDOM

__all__ = ["Comparison", "TypeCounts", "WrittenBytes", "exec_of", "is_fork", "page_marks", "total_types",
           "total_written", "value_marks"]  # fmt: skip

MARK = 16
# The types of immutable values, which the collector does not track, as their modules name them.
VALUES = {"str", "unicode", "bytes", "int", "long", "float", "complex"}
# If at least this many objects are frozen, the program has called gc.freeze(), and the collector skips them.
MANY_FROZEN = 5000


@dataclass(frozen=True)
class TypeCounts:
    """A type whose objects' reference counts have changed. A page with objects of several types counts for each of
    these types."""

    type: str
    objects: int
    bytes: int
    counts_only: int
    recounted: int = 0


@dataclass(frozen=True)
class WrittenBytes:
    """Bytes of the private writable pages that only one process maps, classified by their difference from another
    process's pages.

    ``collector``: includes pages that the collector has certainly written and restored.
    ``freezing``: the bytes that gc.freeze() would have saved. This is ``collector`` without the share of pages that are
    written for other reasons. The share is measured on memory that the collector never writes.
    """

    restored: int = 0
    recounted: int = 0
    collector: int = 0
    counts_only: int = 0
    both: int = 0
    data: int = 0
    not_there: int = 0
    shared: int = 0
    freezing: int = 0

    @property
    def unshared(self) -> int:
        """Bytes of pages that the process once shared, or may have shared: the sum of the kinds of writes."""
        return self.restored + self.recounted + self.collector + self.counts_only + self.both + self.data


def total_written(rows: Iterable[WrittenBytes]) -> WrittenBytes:
    """Return one record with the sums over all ``rows``."""
    found = list(rows)
    return WrittenBytes(*(sum(getattr(row, field.name) for row in found) for field in fields(WrittenBytes)))


def total_types(rows: Iterable[TypeCounts]) -> list[TypeCounts]:
    """Return one row for each type, the types on the most pages first."""
    found: dict[str, TypeCounts] = {}
    for row in rows:
        old = found.get(row.type, TypeCounts(row.type, 0, 0, 0))
        sums = (getattr(old, name) + getattr(row, name) for name in ("objects", "bytes", "counts_only", "recounted"))
        found[row.type] = TypeCounts(row.type, *sums)
    return sorted(found.values(), key=lambda row: (-row.bytes - row.recounted, row.type))


def exec_of(folder: ProcessFolder) -> tuple[str | None, bytes] | None:
    """Return the facts that identify the exec of a process; None if the kernel shows none. The process is not stopped.

    The facts are the program and the auxiliary vector, which contains addresses chosen at random. Processes of
    different execs hardly ever have equal facts; ``is_fork`` compares more.
    """
    try:
        vector = folder.read("auxv")
    except OSError:
        return None
    return (executable(folder), vector) if vector else None


def is_fork(one: Process, other: Process) -> bool:
    """Return whether two processes come from one exec. Their auxiliary vectors must be equal, and so must the kernel's
    random bytes to which the vectors point.
    """
    if not one.auxv or one.auxv != other.auxv:
        return False
    return _seed(one) is not None and _seed(one) == _seed(other)


def _seed(process: Process) -> bytes | None:
    """Return the 16 random bytes that the kernel gave the program at its start; None if they cannot be read.

    Their address is AT_RANDOM (getauxval(3)).
    """
    try:
        return process.space.read(process.auxv.get(AT_RANDOM, 0), 16)
    except Fault:
        return None


def private_ranges(process: Process) -> Ranges:
    """Return the ranges of private writable memory, without the kernel's own mappings."""
    return [
        (mapping.start, mapping.end)
        for mapping in process.mappings
        if mapping.private and mapping.writable and is_readable(mapping) and not mapping.is_kernels
    ]


class Comparison:
    """A comparison of the pages of a process with the pages of another process.

    Both processes must be stopped during ``read``. The other process is stopped only then: work that grows with this
    process's objects is done before and after ``read``. Raises Unsupported.
    """

    def __init__(self, heap: Heap) -> None:
        process, self._heap = heap.target, heap
        assert isinstance(process, Process)
        self._process = process
        self._objects = heap.python.objects_or_none
        collector = or_none(lambda: heap.python.collector)
        frozen = 0 if collector is None else count_frozen(process.space, collector, MANY_FROZEN)
        self._collector = None if frozen == MANY_FROZEN else collector
        self._found: tuple[_native.ComparedPages, Ranges, bool] | None = None

    def read(self, other: Process) -> bool:
        """Compare the pages. Return False if the processes come from different execs, or if the other one cannot be
        compared.

        Raises OSError.
        """
        here = self._process
        if other.refusal is not None or other.pages is None or not is_fork(here, other):
            return False
        ranges = intersect(private_ranges(here), private_ranges(other))
        path = here.folder.path("pagemap")
        compared = _native.compare_pages(here.space, other.space, other.pages, path, ranges)
        self._found = compared, ranges, self._has_collected(other)
        return True

    def answer(self) -> tuple[WrittenBytes, list[TypeCounts]]:
        """Return the bytes of the pages by kind of write, and the types whose reference counts were written.

        Call it after ``read`` has returned True. The other process may run meanwhile. Raises OSError.
        """
        assert self._found is not None
        (compared, ranges, has_collected), here, objects = self._found, self._process, self._objects
        heaps = _native.Heaps(here.space, []) if objects is None else objects.heaps
        layout, statics = (None, []) if objects is None else (objects.layout, _statics(self._heap))
        found = _native.written_pages(compared, heaps, layout, statics, self._heap.labelled("comparing pages"))
        names = [] if objects is None else [(row, objects.names.name(row.type_address)) for row in found.types]
        page = here.machine.page
        types = [_type_counts(row, name, page, has_collected) for row, name in names]
        new = _alone(here, subtract(private_ranges(here), ranges))
        return _written(found, new, page, has_collected), types

    def _has_collected(self, other: Process) -> bool:
        """Return whether the collector has run over all objects in one of the processes since the fork.

        False if the objects were frozen. The collector has the same address in both processes."""
        one = self._collector
        two = None if one is None else collector_at(other.space, one)
        if one is None or two is None:
            return False
        return bool(one.collections) and one.collections[-1:] != two.collections[-1:]


def _type_counts(row: _native.CountsOf, name: str, page: int, has_collected: bool) -> TypeCounts:
    restored = row.restored + (0 if has_collected else row.restored_tracked)
    return TypeCounts(name, row.objects, row.pages * page, row.counts_alone * page, restored * page)


def _alone(process: Process, ranges: Ranges) -> int:
    """Return how many pages of ``ranges`` only this process maps. Raises OSError.

    ``ranges``: memory of the process that the compared process lacks."""
    path, pages, page = process.folder.path("pagemap"), process.pages, process.machine.page
    if pages is None:
        return sum(exclusive_pages(path, start, end, page) for start, end in ranges)
    runs = joined([(run.start, run.end) for start, end in ranges for run in pages.runs(start, end)])
    return sum(exclusive_pages(path, start, end, page) for start, end in runs)


def _statics(heap: Heap) -> list[tuple[int, int]]:
    """Return (address of a static type, address of its own type) for each static type. Static types lie outside all
    blocks.
    """
    objects, found = heap.python.objects, []
    for address in objects.static_types():
        try:
            found.append((address, heap.target.space.word(address + objects.release.at(cpython.OB_TYPE))))
        except Fault:
            continue
    return found


def _written(found: _native.WrittenPages, new: int, page: int, has_collected: bool) -> WrittenBytes:
    recounted, collector = found.restored_counts, found.collector
    if has_collected:
        collector += found.restored_tracked
    else:
        recounted += found.restored_tracked
    # Pages that the collector never writes were written for other reasons. The same share is assumed for the other
    # pages.
    quiet = found.quiet_own + found.quiet_shared
    freezing = collector * found.quiet_shared // quiet if quiet else collector
    new += found.only_here
    counts = (found.restored, recounted, collector, found.counts, found.both, found.other, new, found.shared, freezing)
    return WrittenBytes(*(page * count for count in counts))


def page_marks(process: Process, shared: bool = False) -> set[bytes]:
    """Return the marks of the private pages that only this process maps, or of all private pages if ``shared``.

    A mark is a hash of a page's content. Pages of zeros have none."""
    marks = _native.page_marks(process.space, process.folder.path("pagemap"), private_ranges(process), shared)
    return _parted(marks)


def value_marks(heap: Heap) -> set[bytes]:
    """Return the marks of pages that only this process maps and that contain only objects of types in VALUES.

    A mark is a hash of a page's content, as in ``page_marks``. The set is empty if there are no such objects. Raises
    GdbheapError.
    """
    process, objects = heap.target, heap.python.objects
    assert isinstance(process, Process)
    names = {row.address: objects.names.name(row.address) for row in heap.python.census.rows}
    types = {address for address, name in names.items() if name in VALUES}
    path, progress = process.folder.path("pagemap"), heap.labelled("comparing pages")
    ranges = private_ranges(process)
    return _parted(_native.value_marks(objects.heaps, objects.layout, types, path, ranges, progress))


def _parted(marks: bytes) -> set[bytes]:
    return {marks[place : place + MARK] for place in range(0, len(marks), MARK)}
