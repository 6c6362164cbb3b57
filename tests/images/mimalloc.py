"""mimalloc's memory laid out word by word: segments, pages with blocks of one size, and lists of free blocks.

The offsets are stated here a second time, from mimalloc 2.1's types.h as in CPython 3.13.
"""

from __future__ import annotations

import functools
import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

from images.memory import PAGE, Memory

SEGMENT, SLICE, SLICES = 32 << 20, 64 << 10, 512
DELAYED = 2840
HEAP = 3072
STRIDES = {"free-threaded": 96, "with the lock": 80}
SIZES = (8, 16, 32, 48, 64, 80, 96, 112, 128, 160, 320, 512, 640, 1024, 2048, 5120, 8192)


@dataclass
class Page:
    """A page as laid out; ``lists``: the numbers of the blocks on free, local_free, xthread_free, and on the heap's
    thread_delayed_free."""

    entry: int
    blocks: int
    size: int
    capacity: int
    reserved: int
    tag: int
    heap: int
    lists: list[list[int]]

    @functools.cached_property
    def used(self) -> set[int]:
        """Return the numbers of the blocks in use."""
        return set(range(self.capacity)) - self.list_of.keys()

    @functools.cached_property
    def list_of(self) -> dict[int, int]:
        """Return the list of each free block."""
        return {number: place for place, numbers in enumerate(self.lists) for number in numbers}

    def block(self, number: int) -> int:
        """Return the address of a block."""
        return self.blocks + number * self.size


@dataclass
class Image:
    """An address space with mimalloc in it, and its contents."""

    kind: str
    rng: random.Random
    page: int = PAGE
    memory: Memory = field(init=False)
    pages: list[Page] = field(default_factory=list)
    segments: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng, self.memory = self.rng, Memory(page=self.page)
        self.key = rng.getrandbits(63)
        self.stride = STRIDES[self.kind]
        self.heaps = [0x7F00_0000_0000 + HEAP * number for number in range(4)]
        self.memory.map(self.heaps[0], 4 * self.page)
        self.memory.map(0x7FFF_0000_0000, 2 * self.page, "/usr/bin/python3.13")
        base = rng.randrange(1 << 12, 1 << 14) * SEGMENT
        # The memory before the first segment, and between segments, is foreign.
        self.memory.map(base - 2 * self.page, 2 * self.page)
        for number in range(rng.randrange(1, 3)):
            start = base + number * 4 * SEGMENT
            self.memory.map(start, SEGMENT)
            self._segment(start)
        self._huge(base + 16 * SEGMENT)
        for heap, blocks in self.waiting.items():
            self._chain(heap + DELAYED, blocks)

    def save(self, path: Path) -> Path:
        """Write the core."""
        return self.memory.save(path)

    def _segment(self, start: int) -> None:
        first = len(self.pages)
        self._span(start, 0, 1)
        index = 1
        while index < SLICES:
            count = min(self.rng.choice((1, 1, 1, 1, 8, 3, 40)), SLICES - index)
            self._span(start, index, count)
            if self.rng.random() < 0.7:
                self._page(start, index, count)
            else:
                self._put32(start, index, 28, 0)
            index += count
        self._head(start, SLICES, len(self.pages) - first, 0)
        self.segments[start] = start + SEGMENT

    def _huge(self, start: int) -> None:
        count = self.rng.randrange(300, 900)
        self.memory.map(start, (count + 1) * SLICE)
        self._span(start, 0, 1)
        self._span(start, 1, count)
        self._page(start, 1, count, count * SLICE)
        self._head(start, count + 1, 1, 1)
        self.segments[start] = start + (count + 1) * SLICE

    def _head(self, start: int, slices: int, used: int, kind: int) -> None:
        entries = min(slices, SLICES)
        self.memory.put(start + 208, used, self.key ^ start, slices, 1, kind, entries, 0x1000)

    def _span(self, start: int, index: int, count: int) -> None:
        self._put32(start, index, 0, count)
        self._put32(start, index, 28, 1)
        last = index + count - 1
        if last > index and last < SLICES:
            self._put32(start, last, 4, self.stride * (count - 1))

    def _put32(self, start: int, index: int, offset: int, value: int) -> None:
        self.memory.write(start + 264 + index * self.stride + offset, struct.pack("<I", value))

    def _page(self, start: int, index: int, count: int, size: int = 0) -> None:
        rng = self.rng
        size = size or rng.choice([own for own in (*SIZES, count * SLICE) if own <= count * SLICE])
        at = start + index * SLICE
        blocks = at + (3 * size if size <= 64 else size if size <= 512 else 0)
        reserved = min((at + count * SLICE - blocks) // size, 0xFFFF)
        capacity = rng.randrange(1, reserved + 1)
        lists = self._lists(capacity)
        heap = rng.choice([0, *self.heaps])
        if heap == 0:
            lists[3] = []
        tag = rng.randrange(4) if self.kind == "free-threaded" else 0
        page = Page(start + 264 + index * self.stride, blocks, size, capacity, reserved, tag, heap, lists)
        self._write(page)
        self.pages.append(page)

    def _lists(self, capacity: int) -> list[list[int]]:
        """Return the blocks of each list, in any order; sometimes all blocks are used, or none."""
        numbers = list(range(capacity))
        self.rng.shuffle(numbers)
        free = self.rng.choice((0, capacity, self.rng.randrange(capacity + 1)))
        cuts = sorted(self.rng.randrange(free + 1) for _ in range(3))
        ends = [*cuts, free]
        lists = [numbers[first:last] for first, last in zip([0, *cuts], ends)]
        lists[2].extend(lists[3][1:])
        return [*lists[:3], lists[3][:1]]

    def _write(self, page: Page) -> None:
        memory, at = self.memory, page.entry
        counted = page.capacity - len(page.lists[0]) - len(page.lists[1])
        memory.write(at + 8, bytes([1 | page.tag << 3, 0]) + struct.pack("<HH", page.capacity, page.reserved))
        block_size = page.size if page.size < 1 << 31 else 1 << 31
        memory.write(at + 24, struct.pack("<II", counted, block_size))
        for offset, numbers in zip((16, 32, 40), page.lists):
            self._chain(at + offset, [page.block(number) for number in numbers])
        memory.put(at + 40, memory.word(at + 40) | self.rng.randrange(4))
        memory.put(at + 48, page.heap)
        if page.heap:
            self.waiting.setdefault(page.heap, []).extend(page.block(number) for number in page.lists[3])

    def _chain(self, head: int, blocks: list[int]) -> None:
        for place, block in zip([head, *blocks], [*blocks, 0]):
            self.memory.put(place, block)
