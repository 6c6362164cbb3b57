"""Pages that a process shared with its parent since the fork and has alone by now, by what they were written.

The kernel copies a page for whoever writes it first. A page that is mapped by one process alone (pagemap's bit 56)
and was there at the fork differs from the parent's by what was written since, or is equal: what was written was put
back. On an equal page with Python objects these were reference counts, which go up while an object is used and down
again; or the collector wrote there, if it tracks objects of the page and has run over all of them since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from gdbheap import _native
from gdbheap.contents.python.objects.collector import collector_at, count_frozen
from gdbheap.errors import Fault, or_none
from gdbheap.heap import Heap
from gdbheap.host.procfs import ProcessFolder, exclusive_pages
from gdbheap.layout import cpython
from gdbheap.targets.process import Process, executable, is_readable
from gdbheap.targets.ranges import Ranges, intersect, joined, subtract
from gdbheap.targets.target import AT_RANDOM

__all__ = ["Comparison", "TypeCounts", "Written", "exec_of", "is_fork", "page_marks", "total_types", "total_written",
           "value_marks"]  # fmt: skip

MARK = 16
# The types of values that never change and that the collector does not track, by the modules that name them.
VALUES = {"str", "unicode", "bytes", "int", "long", "float", "complex"}
# From so many on the program has called gc.freeze(): then the collector has left alone what there was.
MANY_FROZEN = 5000


@dataclass(frozen=True)
class TypeCounts:
    """Reference counts of a type's objects that have changed; pages with several types count for each."""

    type: str
    objects: int
    bytes: int
    counts_only: int
    recounted: int = 0


@dataclass(frozen=True)
class Written:
    """Pages of private memory that may be written and that one process has alone, by what differs from another's.
    ``collector`` has pages that it has certainly written and restored too; ``freezing`` leaves out as many pages as
    are written for other reasons where the collector never writes."""

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
        """What was shared once, or may have been."""
        return self.restored + self.recounted + self.collector + self.counts_only + self.both + self.data


def total_written(rows: Iterable[Written]) -> Written:
    """All of them together."""
    found = list(rows)
    return Written(*(sum(getattr(row, field.name) for row in found) for field in fields(Written)))


def total_types(rows: Iterable[TypeCounts]) -> list[TypeCounts]:
    """A row a type, those on the most pages first."""
    found: dict[str, TypeCounts] = {}
    for row in rows:
        old = found.get(row.type, TypeCounts(row.type, 0, 0, 0))
        sums = (getattr(old, name) + getattr(row, name) for name in ("objects", "bytes", "counts_only", "recounted"))
        found[row.type] = TypeCounts(row.type, *sums)
    return sorted(found.values(), key=lambda row: (-row.bytes - row.recounted, row.type))


def exec_of(folder: ProcessFolder) -> tuple[str | None, bytes] | None:
    """Return what processes that come from one exec have in common, as the kernel says it without a stop: the program,
    and the auxiliary vector with the addresses that it chose at random; None where it says nothing. What it says of
    processes of one exec is the same, what it says of others hardly ever is: ``is_fork`` tells."""
    try:
        vector = folder.read("auxv")
    except OSError:
        return None
    return (executable(folder), vector) if vector else None


def is_fork(one: Process, other: Process) -> bool:
    """Whether two processes come from one exec: they have the auxiliary vector, with where the kernel's random bytes
    are, and these."""
    if not one.auxv or one.auxv != other.auxv:
        return False
    return _seed(one) is not None and _seed(one) == _seed(other)


def _seed(process: Process) -> bytes | None:
    """The 16 bytes that the kernel gave the program when it started (AT_RANDOM, getauxval(3))."""
    try:
        return process.space.read(process.auxv.get(AT_RANDOM, 0), 16)
    except Fault:
        return None


def private_ranges(process: Process) -> Ranges:
    """Private memory that may be written, but the kernel's own."""
    return [
        (mapping.start, mapping.end)
        for mapping in process.mappings
        if mapping.private and mapping.writable and is_readable(mapping) and not mapping.is_kernels
    ]


class Comparison:
    """The pages of a process beside another's. Both must stand still for ``read``, and the other for nothing else: what
    takes as long as this process's objects do is done before and after. Raises Unsupported."""

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
        """Compare the pages, if both come from one exec; return whether they do. Raises OSError."""
        here = self._process
        if other.refusal is not None or other.pages is None or not is_fork(here, other):
            return False
        ranges = intersect(private_ranges(here), private_ranges(other))
        path = here.folder.path("pagemap")
        compared = _native.compare_pages(here.space, other.space, other.pages, path, ranges)
        self._found = compared, ranges, self._has_collected(other)
        return True

    def answer(self) -> tuple[Written, list[TypeCounts]]:
        """By what the pages were written that were compared. Raises OSError."""
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
        """Whether the collector has run over all objects since the two parted, in either; not where they were frozen.
        The other's is where this process has it."""
        one = self._collector
        two = None if one is None else collector_at(other.space, one)
        if one is None or two is None:
            return False
        return bool(one.collections) and one.collections[-1:] != two.collections[-1:]


def _type_counts(row: _native.CountsOf, name: str, page: int, has_collected: bool) -> TypeCounts:
    restored = row.restored + (0 if has_collected else row.restored_tracked)
    return TypeCounts(name, row.objects, row.pages * page, row.counts_alone * page, restored * page)


def _alone(process: Process, ranges: Ranges) -> int:
    """How many pages of memory that the other has not this process alone has. Raises OSError."""
    path, pages, page = process.folder.path("pagemap"), process.pages, process.machine.page
    if pages is None:
        return sum(exclusive_pages(path, start, end, page) for start, end in ranges)
    runs = joined([(run.start, run.end) for start, end in ranges for run in pages.runs(start, end)])
    return sum(exclusive_pages(path, start, end, page) for start, end in runs)


def _statics(heap: Heap) -> list[tuple[int, int]]:
    """Static types, which lie in no block, each with its own type."""
    objects, found = heap.python.objects, []
    for address in objects.static_types():
        try:
            found.append((address, heap.target.space.word(address + objects.release.at(cpython.OB_TYPE))))
        except Fault:
            continue
    return found


def _written(found: _native.WrittenPages, new: int, page: int, has_collected: bool) -> Written:
    recounted, collector = found.restored_counts, found.collector
    if has_collected:
        collector += found.restored_tracked
    else:
        recounted += found.restored_tracked
    # Where the collector never writes, these pages were written for other reasons: the others were by as many.
    quiet = found.quiet_own + found.quiet_shared
    freezing = collector * found.quiet_shared // quiet if quiet else collector
    new += found.only_here
    counts = (found.restored, recounted, collector, found.counts, found.both, found.other, new, found.shared, freezing)
    return Written(*(page * count for count in counts))


def page_marks(process: Process, shared: bool = False) -> set[bytes]:
    """Marks of the pages of private memory that a process has alone, with ``shared`` of all that it has; equal for
    equal ones; zeros have none."""
    marks = _native.page_marks(process.space, process.folder.path("pagemap"), private_ranges(process), shared)
    return _parted(marks)


def value_marks(heap: Heap) -> set[bytes]:
    """Return the marks of those pages that a process has alone on which only objects of VALUES lie; without such
    objects none. Raises GdbheapError."""
    process, objects = heap.target, heap.python.objects
    assert isinstance(process, Process)
    names = {row.address: objects.names.name(row.address) for row in heap.python.census.rows}
    types = {address for address, name in names.items() if name in VALUES}
    path, progress = process.folder.path("pagemap"), heap.labelled("comparing pages")
    ranges = private_ranges(process)
    return _parted(_native.value_marks(objects.heaps, objects.layout, types, path, ranges, progress))


def _parted(marks: bytes) -> set[bytes]:
    return {marks[place : place + MARK] for place in range(0, len(marks), MARK)}
