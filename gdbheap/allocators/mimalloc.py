"""CPython's own mimalloc at one stop: that of free-threaded builds, and of ``PYTHONMALLOC=mimalloc`` since 3.13.

Segments lie at multiples of 32 MiB. Each says how many slices it has, its table of them tiles it, and its cookie is the
same constant in all of them once its address is taken out. No symbols are needed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.facts import Facts
from gdbheap.target.ranges import Ranges, subtract
from gdbheap.target.target import Damage, Target

SEGMENT = 32 << 20
SLICE = 64 << 10
# sizeof(mi_page_t): free-threaded builds have a list of pages to be freed later in it.
FREE_THREADED_ENTRY, ENTRY = 96, 80
# thread_delayed_free in mi_heap_t, the same in 3.13 to 3.15.
DELAYED = 2840
TAGS = ("PyMem", "objects", "objects of the collector", "objects of the collector with a pre-header")
# mi_arena_t: {int id; mi_memid_t memid; uint8_t *start @32; size_t block_count, field_count; …}.
ARENA_START = 4
MOST_BLOCKS = 1 << 20


@dataclass(frozen=True)
class Layout:
    """What the native walk is told: bytes of ``mi_page_t``, the offset of ``thread_delayed_free`` in ``mi_heap_t``."""

    entry: int
    delayed: int = DELAYED


@dataclass(frozen=True)
class Segment:
    """[start, end) and the thread that owns it; 0 when that one is gone."""

    start: int
    end: int
    thread: int


class Mimalloc:
    """mimalloc in one target. Raises Unsupported at construction where there are no segments."""

    def __init__(self, target: Target, facts: Facts) -> None:
        self.target = target
        self.damage: list[Damage] = []
        self.entry, found = self._find_segments()
        self._report_cookies(found)
        addresses = [address for address, _cookie, _used in found]
        self.blocks = _native.read_mimalloc(target.space, addresses, Layout(self.entry))
        self.damage.extend(Damage(*row) for row in self.blocks.damage)
        self.segments = [Segment(*row) for row in self.blocks.segment_rows()]
        self.arenas = self._find_arenas()
        source = "their tables of slices tile them"
        facts.add("mimalloc segments", len(self.segments), source, f"one cookie in {len(found)} of them")
        facts.add("mimalloc page entry", self.entry, source)
        facts.add("mimalloc arenas", len(self.arenas), "blocks of 32 MiB around the segments, in the interpreter's data")

    def _find_segments(self) -> tuple[int, list[tuple[int, int, int]]]:
        """The size of a page's entry, and (address, cookie, used pages) of each segment that holds pages."""
        ranges = [
            (mapping.start, mapping.end)
            for mapping in self.target.mappings
            if mapping.anonymous and mapping.private and mapping.writable and mapping.readable
        ]
        for entry in (FREE_THREADED_ENTRY, ENTRY):
            found = [row for row in _native.find_segments(self.target.space, ranges, entry) if row[2]]
            if found:
                return entry, found
        raise Unsupported("no segments of mimalloc: nothing at a multiple of 32 MiB is tiled by a table of slices")

    def _report_cookies(self, found: list[tuple[int, int, int]]) -> None:
        common = Counter(cookie for _address, cookie, _used in found).most_common(1)[0][0]
        for address, cookie, _used in found:
            if cookie != common:
                expected, met = f"{common ^ address:#x}", f"{cookie ^ address:#x}"
                self.damage.append(Damage(address + 216, "cookie of a segment", expected, met))

    def _find_arenas(self) -> Ranges:
        """[start, end) of each reserved area that segments are cut from, ascending: mi_arena_t lies in static data."""
        found: set[tuple[int, int]] = set()
        for loaded in self.target.objects:
            for start, end in loaded.writable_ranges():
                found.update(self._arenas_in(start, end))
        return sorted(found)

    def _arenas_in(self, start: int, end: int) -> list[tuple[int, int]]:
        start = (start + 7) & ~7
        try:
            raw = self.target.space.read(start, (end - start) & ~7)
        except Fault:
            raw = self.target.space.read_available(start, (end - start) & ~7)
        words = memoryview(raw[: len(raw) & ~7]).cast("Q")
        places = [index for index, word in enumerate(words) if word and word % SEGMENT == 0]
        return [
            (words[index], words[index] + words[index + 1] * SEGMENT)
            for index in places
            if index >= ARENA_START and index + 2 < len(words) and self._is_arena(words[index - ARENA_START :][:7])
        ]

    def _is_arena(self, words: memoryview) -> bool:
        number, start, count, fields = words[0] & 0xFFFFFFFF, words[ARENA_START], words[5], words[6]
        fits = 1 <= number <= 255 and 0 < count <= MOST_BLOCKS and fields == -(-count // 64)
        return fits and any(start <= segment.start < start + count * SEGMENT for segment in self.segments)

    @property
    def is_free_threaded(self) -> bool:
        """Whether the interpreter is: then its objects have another head, and each heap of a thread a tag."""
        return self.entry == FREE_THREADED_ENTRY

    def reserved(self) -> Ranges:
        """What its arenas have beside the segments, ascending."""
        return subtract(self.arenas, [(segment.start, segment.end) for segment in self.segments])

    def ranges(self) -> Ranges:
        """All that is its own, ascending."""
        return sorted([(segment.start, segment.end) for segment in self.segments] + list(self.reserved()))
