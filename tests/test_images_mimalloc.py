"""mimalloc laid out by the tests, sound and damaged: each block has the builder's state, and damage is named."""

from __future__ import annotations

import bisect
import random
from collections import Counter
from pathlib import Path

import pytest
from images.mimalloc import STRIDES, Image, Page

from gdbheap.allocators.mimalloc.segments import Mimalloc
from gdbheap.errors import Unsupported
from gdbheap.layout.facts import Facts
from gdbheap.targets.core import Core

LISTS = ("free", "local_free", "xthread_free", "thread_delayed_free")
kinds = pytest.mark.parametrize("kind", STRIDES)


def read(image: Image, folder: Path) -> tuple[Core, Mimalloc]:
    """Return the core of an image and the mimalloc that was found in it."""
    core = Core(str(image.save(folder / "core")))
    return core, Mimalloc(core, Facts())


def compare(core: Core, found: Mimalloc, pages: list[Page], rng: random.Random) -> None:
    """Compare blocks of every page, and the addresses around them."""
    for page in pages:
        for number in rng.sample(range(page.capacity), min(page.capacity, 15)):
            inside = page.block(number) + rng.randrange(page.size)
            place = page.list_of.get(number)
            state = ("used", None) if place is None else ("free", LISTS[place])
            expected = (page.block(number), page.size, *state)
            row = found.blocks.find(core.space, inside)
            assert (row.address, row.size, row.state, row.list) == expected, (page, number)
        end = page.block(page.capacity)
        if page.capacity < page.reserved:
            row = found.blocks.find(core.space, end)
            assert row is not None and row.state == "free"


@kinds
def test_every_block(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check segments, block sizes, heaps, holes, and the state and list of blocks."""
    for _ in range(2):
        image = Image(kind, rng)
        core, found = read(image, tmp_path)
        assert found.damage == [] and found.blocks.miscounted == []
        assert {segment.start: segment.end for segment in found.segments} == image.segments
        rows = {row.block_size: (row.groups, row.used, row.free) for row in found.blocks.classes()}
        sizes = Counter(page.size for page in image.pages)
        used = Counter(dict.fromkeys(sizes, 0))
        room = Counter(dict.fromkeys(sizes, 0))
        for page in image.pages:
            used[page.size] += len(page.used)
            room[page.size] += page.reserved
        assert rows == {size: (sizes[size], used[size], room[size] - used[size]) for size in sizes}
        heaps = {row.tag: (row.pages, row.used, row.abandoned) for row in found.blocks.heaps()}
        for tag, row in heaps.items():
            own = [page for page in image.pages if page.tag == tag]
            assert row == (len(own), sum(len(page.used) for page in own), sum(page.heap == 0 for page in own))
        assert sum(row[0] for row in heaps.values()) == len(image.pages)
        compare(core, found, image.pages, rng)


def holes_by_byte(image: Image, page: Page) -> int:
    """Return the longest run of free blocks of a page, found block by block."""
    longest = run = 0
    for number in range(page.reserved):
        run = 0 if number in page.used else run + page.size
        longest = max(longest, run)
    return longest


@kinds
def test_holes(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that no hole contains a used block, and that none is shorter than the longest run of its page."""
    image = Image(kind, rng)
    _core, found = read(image, tmp_path)
    holes = [(hole.start, hole.end) for hole in found.blocks.holes(1)]
    assert holes == sorted(holes) and all(start < end for start, end in holes)
    for page in image.pages:
        end = page.block(page.reserved)
        touching = holes[max(0, bisect.bisect(holes, (page.blocks, 0)) - 1) : bisect.bisect(holes, (end, 0))]
        inside = [min(last, end) - max(first, page.blocks) for first, last in touching if last > page.blocks]
        assert sum(inside) == (page.reserved - len(page.used)) * page.size
        assert max(inside, default=0) == holes_by_byte(image, page)


@kinds
def test_damage(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a damaged word is named close to its place, and that every other page is unchanged."""
    for what in rng.sample(("slice_count", "capacity", "used", "free", "loop", "cookie"), 3):
        image = Image(kind, rng)
        fit = [page for page in image.pages if 2 <= len(page.lists[0]) and page.size < 1 << 15]
        if not fit:
            continue
        page = rng.choice(fit)
        segment = page.entry & -(32 << 20)
        spoil(image, page, what, segment)
        core, found = read(image, tmp_path)
        places = [damage.address for damage in found.damage] + [row.damage.address for row in found.blocks.miscounted]
        wanted = segment + 216 if what == "cookie" else page.entry
        if what == "cookie" and len(image.segments) < 3:
            continue
        assert wanted in places, (what, places)
        others = [other for other in image.pages if other is not page]
        if what == "slice_count":
            others = [other for other in others if other.entry & -(32 << 20) != segment]
        compare(core, found, others, rng)


def spoil(image: Image, page: Page, what: str, segment: int) -> None:
    """Change one word."""
    memory = image.memory
    first, second = (page.block(number) for number in page.lists[0][:2])
    if what == "slice_count":
        # Damage to the tiling hides this segment only if another one shows that mimalloc is there.
        memory.write(page.entry, bytes(8))
    elif what == "capacity":
        memory.write(page.entry + 10, b"\xff\xff")
    elif what == "used":
        memory.write(page.entry + 24, bytes([page.capacity & 255 ^ 85, 0, 0, 0]))
    elif what == "free":
        memory.put(first, second + 1)
    elif what == "loop":
        memory.put(second, first)
    else:
        memory.put(segment + 216, 1 << 40)


def test_nothing_there(rng: random.Random, tmp_path: Path) -> None:
    """Check memory at multiples of 32 MiB that is no segment: random words, and a header without a table."""
    image = Image("free-threaded", rng)
    for segment in image.segments:
        image.memory.write(segment, rng.randbytes(4096) if rng.random() < 0.5 else bytes(64 << 10))
    with pytest.raises(Unsupported):
        read(image, tmp_path)
