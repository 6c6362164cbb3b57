"""CPython's own mimalloc at one stop: that of free-threaded builds, and of ``PYTHONMALLOC=mimalloc`` since 3.13.

Segments lie at multiples of 32 MiB. Each says how many slices it has, its table of them tiles it, and its cookie is the
same constant in all of them once its address is taken out. No symbols are needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.facts import Facts
from gdbheap.target.ranges import Ranges, subtract
from gdbheap.target.target import Damage, Target

SEGMENT = 32 << 20
# sizeof(mi_page_t): free-threaded builds have a list of pages to be freed later in it.
FREE_THREADED_ENTRY, ENTRY = 96, 80
# thread_delayed_free in mi_heap_t.
DELAYED = 2840
# In late releases of 3.14 and in 3.15, read from 3.14.10 and 3.15.2.
NEWER_ENTRY, NEWER_DELAYED = 96, 8
TAGS = ("PyMem", "objects", "objects of the collector", "objects of the collector with a pre-header")
# mi_arena_t: {int id; mi_memid_t memid; uint8_t *start @32; size_t block_count, field_count; …}.
ARENA_START = 32
# mi_memid_t, with which a segment begins: {size_t block_index; int id; bool is_exclusive @12; …; int memkind @20}.
MEMID = "Pi8xi"
IN_ARENA = 6
MAX_BLOCKS = 1 << 20


@dataclass(frozen=True)
class Layout:
    """What the native walk is told: bytes of ``mi_page_t``, the offset of ``thread_delayed_free`` in ``mi_heap_t``."""

    entry: int
    delayed: int = DELAYED
    newer: bool = False

    @property
    def cookie(self) -> int:
        """Where a segment has its cookie."""
        return 224 if self.newer else 216

    @property
    def tagged(self) -> bool:
        """Whether each heap of a thread has its tag: in free-threaded builds."""
        return self.entry == FREE_THREADED_ENTRY and not self.newer


LAYOUTS = (Layout(FREE_THREADED_ENTRY), Layout(ENTRY), Layout(NEWER_ENTRY, NEWER_DELAYED, True))


class Mimalloc:
    """mimalloc in one target. Raises Unsupported at construction where there are no segments."""

    def __init__(self, target: Target, facts: Facts) -> None:
        self.target = target
        self.damage: list[Damage] = []
        self.cookie = 0
        self.layout, found = self._find_segments()
        self._report_cookies(found)
        self.blocks = _native.read_mimalloc(target.space, list(found), self.layout)
        self.damage.extend(map(Damage.of, self.blocks.damage))
        self.segments = self.blocks.segments()
        self.arenas = self._find_arenas()
        source = "their tables of slices tile them"
        alike = Counter(found.values())[self.cookie]
        facts.add("mimalloc segments", len(self.segments), source, f"one cookie in {alike} of them")
        facts.add("mimalloc page entry", self.layout.entry, source)
        facts.add("mimalloc arenas", len(self.arenas), "segments tell where they begin, mi_arena_t where they end")

    def _find_segments(self) -> tuple[Layout, dict[int, int]]:
        """The layout, and the cookie of each segment that holds pages, by address."""
        ranges = [
            (mapping.start, mapping.end)
            for mapping in self.target.mappings
            if mapping.anonymous and mapping.private and mapping.writable and mapping.readable
        ]
        for layout in LAYOUTS:
            rows = _native.find_segments(self.target.space, ranges, layout.entry, layout.newer)
            rows = [row for row in rows if row.used]
            cookies = Counter(row.cookie for row in rows if row.tiles)
            if cookies:
                self.cookie = cookies.most_common(1)[0][0]
                # Where the cookie is right and the table is not, the table is damaged.
                return layout, {row.address: row.cookie for row in rows if row.tiles or row.cookie == self.cookie}
        raise Unsupported("no segments of mimalloc: nothing at a multiple of 32 MiB is tiled by a table of slices")

    def _report_cookies(self, found: dict[int, int]) -> None:
        for address, cookie in found.items():
            if cookie != self.cookie:
                expected, met = f"{self.cookie ^ address:#x}", f"{cookie ^ address:#x}"
                self.damage.append(Damage(address + self.layout.cookie, "cookie of a segment", expected, met))

    def _find_arenas(self) -> Ranges:
        """[start, end) of each reserved area that segments are cut from, ascending."""
        starts = {start for segment in self.segments if (start := self._arena_of(segment)) is not None}
        found = {start: self._arena_end(place) for start, place in self._arena_structs(starts)}
        return sorted(found.items())

    def _arena_of(self, segment: _native.Segment) -> int | None:
        """Where the arena begins that a segment says it was cut from."""
        layout = self.target.machine.structure(MEMID)
        block, _number, kind = layout.unpack(self.target.space.read(segment.start, layout.size))
        return segment.start - int(block) * SEGMENT if kind == IN_ARENA and block <= MAX_BLOCKS else None

    def _arena_structs(self, starts: set[int]) -> Iterator[tuple[int, int]]:
        """(start of the arena, address of its ``mi_arena_t``): static data has pointers to them, and each its page."""
        mappings, machine = self.target.mappings, self.target.machine
        for loaded in self.target.objects if starts else []:
            for start, end in loaded.writable_ranges():
                start = machine.word_up(start)
                raw = self.target.space.read_available(start, end - start)
                for word in set(machine.words_of(raw)):
                    mapping = mappings.find(word) if word and machine.is_paged(word) else None
                    if mapping is not None and mapping.anonymous and mapping.private:
                        with suppress(Fault):
                            arena = self.target.space.word(word + ARENA_START)
                            if arena in starts and self._arena_end(word):
                                yield arena, word

    def _arena_end(self, place: int) -> int:
        """Where the arena ends whose ``mi_arena_t`` is at ``place``; 0 if that is none. Raises Fault."""
        layout = self.target.machine.structure("PPP")
        start, blocks, fields = layout.unpack(self.target.space.read(place + ARENA_START, layout.size))
        fits = 0 < blocks <= MAX_BLOCKS and fields == -(-blocks // 64)
        return start + blocks * SEGMENT if fits else 0

    @property
    def is_free_threaded(self) -> bool:
        """Whether the interpreter is: then its objects have another head, and each heap of a thread a tag."""
        return self.layout.tagged

    def purpose(self, tag: int) -> str:
        """What the heap with this tag is for; builds with the interpreter's lock have one heap."""
        if not self.is_free_threaded:
            return "all"
        return TAGS[tag] if tag < len(TAGS) else f"tag {tag}"

    def reserved(self) -> Ranges:
        """What its arenas have beside the segments, ascending."""
        return subtract(self.arenas, [(segment.start, segment.end) for segment in self.segments])

    def ranges(self) -> Ranges:
        """All that is its own, ascending."""
        return sorted([(segment.start, segment.end) for segment in self.segments] + list(self.reserved()))
