"""CPython's mimalloc in a process that runs on: its segments are looked for each time, and their tables of pages read.

Each thread changes the counts of its own pages without a lock: of all pages of a busy process a few are in motion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.allocators.mimalloc.roots import SEGMENT, segment_ranges
from gdbheap.allocators.mimalloc.segments import Mimalloc
from gdbheap.machines.machine import Machine
from gdbheap.targets.mappings import Mappings

__all__ = ["RunningMimalloc", "SegmentsNow"]


@dataclass(frozen=True)
class SegmentsNow:
    """The segments and their bytes, how many pages hold blocks, these by the size of their blocks, and how many tables
    of pages or counts were not believed."""

    segments: int
    bytes: int
    pages: int
    classes: Sequence[_native.SizeClass]
    odd: int


@dataclass(frozen=True)
class RunningMimalloc:
    """How a process's segments are laid out."""

    form: _native.MimallocForm
    machine: Machine

    @classmethod
    def of(cls, mimalloc: Mimalloc, machine: Machine) -> RunningMimalloc:
        """From what a look has located."""
        return cls(mimalloc.root.form, machine)

    def now(self, space: _native.Space, mappings: Mappings, is_there: Callable[[int], bool]) -> SegmentsNow:
        """The segments as they are. ``is_there``: whether the page of an address is in memory; no other one is touched.
        Raises KeyboardInterrupt."""
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
        """The multiples of a segment's size in anonymous memory that begin with a page in memory."""
        for start, end in segment_ranges(mappings):
            for address in range(-(-start // SEGMENT) * SEGMENT, end, SEGMENT):
                if is_there(address):
                    yield address, min(address + SEGMENT, end)
