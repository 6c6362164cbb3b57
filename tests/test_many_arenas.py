"""Work for each arena reads only that arena's own regions and heaps: counted with thousands of arenas."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from gdbheap import _native
from gdbheap.allocators.glibc.arenas import Glibc, HeapRange
from gdbheap.answers import arenas

ARENAS, HEAPS, HEAP = 2000, 3, 1 << 26
TOP = _native.STATES.index("top")


class Counted(list):  # type: ignore[type-arg]
    """A list that counts the items that are read."""

    seen = 0

    def __iter__(self) -> Iterator[Any]:
        """Count each item."""
        for item in super().__iter__():
            Counted.seen += 1
            yield item


class Large(Glibc):
    """A malloc of many arenas, each with a few heaps of one region, in random order; no memory is read."""

    def __init__(self, rng: random.Random) -> None:
        """Make the arenas; the byte count of each is right except in ``wrong``, the tops except in ``lost``."""
        self.damage, self._misalignment = [], 0
        self.wrong, self.lost = (set(rng.sample(range(1, ARENAS), 5)) for _ in range(2))
        heaps = [(index, HEAP * (1 + index * HEAPS + place)) for index in range(ARENAS) for place in range(HEAPS)]
        rng.shuffle(heaps)
        sizes = {start: 4096 * rng.randrange(1, 1000) for _index, start in heaps}
        self.heaps = Counted(HeapRange(i, s, s + (64 if i else 0), s + sizes[s], s + HEAP) for i, s in heaps)
        self.rows = Counted(self._row(heap) for heap in self.heaps)
        sums = [sum(heap.end - heap.start for heap in self.heaps if heap.arena == 0)] + [0] * (ARENAS - 1)
        for heap in list.__iter__(self.heaps):
            sums[heap.arena] += heap.end - heap.start if heap.arena else 0
        self.arenas = [self._state(index, size) for index, size in enumerate(sums)]
        self.figures = [
            SimpleNamespace(index=i, address=s.address, system=s.system_mem + (i in self.wrong), top=32)
            for i, s in enumerate(self.arenas)
        ]

    def _row(self, heap: HeapRange) -> SimpleNamespace:
        tallies = [SimpleNamespace(count=0, bytes=0)] * len(_native.STATES)
        tallies[TOP] = SimpleNamespace(count=int(heap.arena not in self.lost), bytes=32)
        return SimpleNamespace(arena=heap.arena, start=heap.chunks, end=heap.end, states=tallies)

    def _state(self, index: int, size: int) -> Any:
        layout = {"bins": 112, "top": 96}
        top = max(heap.start for heap in list.__iter__(self.heaps) if heap.arena == index) + 128 if index < 3 else 1
        return SimpleNamespace(address=index * 4096, layout=layout, system_mem=size, top=top)

    def regions(self) -> Any:
        """Return the regions, counted."""
        return self.rows

    def totals(self) -> Any:
        """Return the totals that each arena counts."""
        return self.figures


def test_books_and_heaps_look_at_each_region_once(rng: random.Random) -> None:
    """Check that all damage is found, and that the work grows with the number of arenas, not with its square."""
    glibc = Large(rng)
    Counted.seen = 0
    glibc._check_books()
    found = sorted(damage.what for damage in glibc.damage)
    assert found == sorted([f"bytes of arena {i}" for i in glibc.wrong] + [f"top of arena {i}" for i in glibc.lost])
    heaps = list(list.__iter__(glibc.heaps))
    assert [glibc.heap_at(heap.start) for heap in heaps] == [glibc.heap_at(heap.reserve - 1) for heap in heaps] == heaps
    assert glibc.heap_at(0) is None and glibc.heap_at(HEAP * (1 + ARENAS * HEAPS)) is None
    by_arena = arenas._heaps_by_arena(glibc)
    rows = [arenas._heaps(glibc, totals, by_arena[totals.index]) for totals in glibc.figures]
    assert [len(row) for row in rows] == [HEAPS] * ARENAS
    assert all(row == sorted(row, key=lambda heap: heap.start) for row in rows)
    assert sum(heap.top for heap in rows[2]) == 32
    assert Counted.seen <= 5 * ARENAS * HEAPS, Counted.seen
