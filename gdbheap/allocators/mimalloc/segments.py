"""CPython's own mimalloc in a stopped process. Free-threaded builds use it; other builds use it with
``PYTHONMALLOC=mimalloc`` (3.13)."""

from __future__ import annotations

from collections import Counter

from gdbheap import _native
from gdbheap.allocators.mimalloc.locate import LocatedMimalloc, find_roots
from gdbheap.errors import Unsupported
from gdbheap.layout.facts import Facts
from gdbheap.targets.ranges import Ranges, subtract
from gdbheap.targets.target import Damage, Target

TAGS = ("PyMem", "objects", "objects of the collector", "objects of the collector with a pre-header")


class Mimalloc:
    """The mimalloc at ``root``, or the largest mimalloc of the target. Raises Unsupported if there is none."""

    def __init__(self, target: Target, facts: Facts, root: LocatedMimalloc | None = None) -> None:
        found = root or next((root for root in find_roots(target).roots if not root.form.has_map), None)
        if found is None:
            raise Unsupported("no segments of mimalloc: no table of slices covers the memory at a multiple of 32 MiB")
        self.target, self.root = target, found
        self._read(found, facts)

    def _read(self, root: LocatedMimalloc, facts: Facts) -> None:
        self.damage: list[Damage] = []
        self._report_cookies(root.cookies)
        self.blocks = _native.read_mimalloc(self.target.space, [(root.form.name, root.padded, root.places)])
        self.damage.extend(map(Damage.of, self.blocks.damage))
        self.segments = self.blocks.segments()
        self.arenas = root.arenas
        source = "their tables of slices cover them exactly"
        alike = Counter(root.cookies.values())[root.cookie]
        facts.add("mimalloc segments", len(self.segments), source, f"{alike} of them have the same cookie")
        facts.add("mimalloc page entry", root.form.entry, source)
        facts.add("mimalloc arenas", len(self.arenas), "pointers in static data, and segments inside of the arenas")

    def _report_cookies(self, found: dict[int, int]) -> None:
        for address, cookie in found.items():
            if cookie != self.root.cookie:
                expected, met = f"{self.root.cookie ^ address:#x}", f"{cookie ^ address:#x}"
                self.damage.append(Damage(address + self.root.form.cookie, "cookie of a segment", expected, met))

    @property
    def is_free_threaded(self) -> bool:
        """Whether the interpreter is free-threaded. Its objects have another header, and each heap of a thread has a
        tag."""
        return self.root.form.tagged

    def purpose(self, tag: int) -> str:
        """Return the purpose of the heap with this tag. In builds with the GIL, each thread has only one heap, for all
        purposes."""
        if not self.is_free_threaded:
            return "all"
        return TAGS[tag] if tag < len(TAGS) else f"tag {tag}"

    def reserved(self) -> Ranges:
        """Return the memory of the arenas outside the segments, ascending."""
        return subtract(self.arenas, [(segment.start, segment.end) for segment in self.segments])

    def ranges(self) -> Ranges:
        """Return all memory of this mimalloc, ascending."""
        return sorted([(segment.start, segment.end) for segment in self.segments] + list(self.reserved()))
