"""Read CPython's mimalloc in a running process. Each read searches for the segments again.

Each thread changes the counts of its own pages without a lock, so in a busy process a few pages are always changing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gdbheap import _native
from gdbheap.allocators.mimalloc.locate import SEGMENT, segment_ranges
from gdbheap.allocators.mimalloc.segments import Mimalloc
from gdbheap.dataclass import dataclass
from gdbheap.machines.machine import Machine
from gdbheap.targets.mappings import Mappings

__all__ = ["RunningMimalloc", "SegmentsNow"]


@dataclass(frozen=True)
class SegmentsNow:
    """The segments at one moment: their number, their bytes, and the number of their pages that hold blocks.

    ``classes``: the pages, grouped by the size of their blocks. ``odd``: how many tables of pages and how many counts,
    in total, have impossible values and were ignored."""

    segments: int
    bytes: int
    pages: int
    classes: Sequence[_native.SizeClass]
    odd: int


@dataclass(frozen=True)
class RunningMimalloc:
    """The layout of the mimalloc segments of a process, to read them while it runs."""

    form: _native.MimallocForm
    machine: Machine

    @classmethod
    def of(cls, mimalloc: Mimalloc, machine: Machine) -> RunningMimalloc:
        """Return an instance for the mimalloc that was located while the process was stopped."""
        return cls(mimalloc.root.form, machine)

    def now(self, space: _native.Space, mappings: Mappings, is_there: Callable[[int], bool]) -> SegmentsNow:
        """Return the segments as they are now. Raises KeyboardInterrupt.

        ``is_there``: a function that returns whether the page of an address is in memory. Absent pages are not touched.
        """
        ranges = list(self._candidates(mappings, is_there))
        rows = _native.find_segments(space, ranges, self.form.name)
        found = [row.address for row in rows if row.used and row.tiles]
        blocks = _native.read_mimalloc(space, [(self.form.name, False, found)])
        segments, classes = blocks.segments(), blocks.classes()
        size = sum(segment.end - segment.start for segment in segments)
        odd = len(blocks.damage) + sum(not row.tiles for row in rows if row.used)
        return SegmentsNow(len(segments), size, sum(row.groups for row in classes), classes, odd)

    @staticmethod
    def _candidates(mappings: Mappings, is_there: Callable[[int], bool]) -> Iterator[tuple[int, int]]:
        """Yield the ranges of anonymous memory where a segment can lie, if their first page is in memory. Each range
        begins at a multiple of a segment's size."""
        for start, end in segment_ranges(mappings):
            for address in range(-(-start // SEGMENT) * SEGMENT, end, SEGMENT):
                if is_there(address):
                    yield address, min(address + SEGMENT, end)
