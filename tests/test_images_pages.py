"""Pages of 4, 16 and 64 KiB: heaps laid out in them, residency by the core's holes, and every answer about both.

The cores are of x86-64 or aarch64, and claim such pages (AT_PAGESZ); the heaps consist of them. The truth is the
builder's: its chunks, and its pages that are not all zeros.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from images import mimalloc
from images.heap import FREE_STATES, SHAPES, Chunk, Image
from images.layouts import GLIBCS
from images.memory import AARCH64, X86_64
from support.image_rows import arena_rows, compare, expected_arena
from support.library import heap_of
from support.programs import ask

from gdbheap.allocators.mimalloc.segments import Mimalloc
from gdbheap.layout.facts import Facts
from gdbheap.targets.core import Core

pytestmark = pytest.mark.cases(6)

PAGES = (4096, 16384, 65536)
AT_PAGESZ = 6
HEAD = 48
THREADS = 4
pages = pytest.mark.parametrize("page", PAGES)
shapes = pytest.mark.parametrize("shape", SHAPES)


def sparse_image(rng: random.Random, shape: str, page: int) -> Image:
    """Return an image of a random glibc and machine whose pages of zeros were never resident."""
    machine = rng.choice((X86_64, AARCH64))
    image = Image(rng.choice(GLIBCS), rng, shape, threads=THREADS, page=page, machine=machine)
    image.memory.sparse = True
    return image


@shapes
@pages
def test_every_chunk(page: int, shape: str, rng: random.Random, tmp_path: Path) -> None:
    """Check state and size of every block, every mmapped chunk and every list, and the output about arenas and
    holes."""
    image = sparse_image(rng, shape, page)
    core = str(image.save(tmp_path / "core"))
    with heap_of(core) as heap:
        assert heap.target.machine.page == page
        compare(heap, image)
    answer = ask("arenas", core)
    assert {row["address"]: row for row in arena_rows(answer)} == {a.address: expected_arena(a) for a in image.arenas}
    assert answer["mmapped_chunks"] == {"count": len(image.mapped), "bytes": sum(chunk.size for chunk in image.mapped)}
    assert ask("check", core)["ok"] is True


def touched(chunks: Iterable[Chunk], page: int) -> set[int]:
    """Return the numbers of the pages that contain any byte of the chunks."""
    return {number for chunk in chunks for number in range(chunk.address // page, (chunk.end - 1) // page + 1)}


def free_pages(chunks: Iterable[Chunk], page: int) -> set[int]:
    """Return the numbers of the pages with all bytes inside the chunks."""
    found: set[int] = set()
    for start, end in runs(chunks):
        found |= set(range(-(-start // page), end // page))
    return found


def runs(chunks: Iterable[Chunk]) -> list[list[int]]:
    """Return [start, end] of each run of adjacent chunks."""
    found: list[list[int]] = []
    for chunk in chunks:
        if found and found[-1][1] == chunk.address:
            found[-1][1] = chunk.end
        else:
            found.append([chunk.address, chunk.end])
    return found


def there(image: Image, numbers: Iterable[int]) -> int:
    """Return the resident bytes of these pages."""
    return sum(image.memory.resident(number * image.page, (number + 1) * image.page) for number in numbers)


@shapes
@pages
def test_ledger(page: int, shape: str, rng: random.Random, tmp_path: Path) -> None:
    """Check chunks in use, free ones, tops and mmapped ones: bytes, resident bytes, whole pages, whole resident
    pages."""
    image = sparse_image(rng, shape, page)
    lines = {line["id"]: line for line in ask("heap", str(image.save(tmp_path / "core")))["ledger"]}
    groups = {"glibc.used": ("used",), "glibc.free": FREE_STATES, "glibc.top": ("top",)}
    for name, states in groups.items():
        chunks = [chunk for chunk in image.chunks if chunk.state in states]
        resident = sum(image.memory.resident(chunk.address, chunk.end) for chunk in chunks)
        found = lines.get(name, {"virtual": 0, "resident": 0})
        assert (found["virtual"], found["resident"]) == (sum(chunk.size for chunk in chunks), resident), name
    for name, numbers in (
        ("glibc.used", touched((chunk for chunk in image.chunks if chunk.state == "used"), page)),
        ("glibc.free", free_pages((chunk for chunk in image.chunks if chunk.state in FREE_STATES), page)),
    ):
        assert (lines[name]["pages"], lines[name]["whole"]) == (page * len(numbers), there(image, numbers)), name
    mapped = lines["glibc.mmapped"]
    resident = sum(image.memory.resident(chunk.base, chunk.base + chunk.size) for chunk in image.mapped)
    assert (mapped["virtual"], mapped["resident"]) == (sum(chunk.size for chunk in image.mapped), resident)
    assert lines["stacks"]["virtual"] == (8 + 5 * (THREADS - 1)) * page
    whole = [line for line in lines.values() if line["parent"] is None]
    assert sum(line["virtual"] for line in whole) == sum(piece.size for piece in image.memory.pieces)
    assert sum(line["resident"] for line in whole) == sum(
        image.memory.resident(piece.start, piece.end) for piece in image.memory.pieces
    )


def released(chunks: Iterable[Chunk], gone: set[int], page: int) -> set[int]:
    """Return the numbers of the pages that malloc_trim() would release if these chunks were free too: the whole
    pages of each run of free chunks, less the first 48 bytes. A cached chunk is not free."""
    free = (chunk for chunk in chunks if chunk.state in ("free", "fast") or chunk.address in gone)
    return {number for start, end in runs(free) for number in range(-(-(start + HEAD) // page), end // page)}


def joins_top(stretch: list[Chunk], gone: set[int]) -> bool:
    """Return whether a run of free chunks would reach the top, which malloc_trim() treats differently."""
    last = stretch[-1]
    before = [chunk for chunk in stretch if chunk.end == last.address]
    is_free = bool(before) and (before[0].state in ("free", "fast") or before[0].address in gone)
    return last.state == "top" and is_free


@pages
def test_trim(page: int, rng: random.Random, tmp_path: Path) -> None:
    """Check the pages of each arena that malloc_trim() would release without the top, and their resident bytes."""
    image = sparse_image(rng, rng.choice(SHAPES), page)
    answer = ask("trim", str(image.save(tmp_path / "core")), "--pad=1T")
    found = {row["address"]: (row["pages"], row["predicted"]) for row in answer["rows"]}
    for arena in image.arenas:
        stretches = [stretch for stretch in arena.stretches if not joins_top(stretch, set())]
        if len(stretches) == len(arena.stretches):
            numbers = set().union(*(released(stretch, set(), page) for stretch in stretches))
            assert found[arena.address] == (page * len(numbers), there(image, numbers))


def stretches_of(image: Image) -> Iterator[list[Chunk]]:
    """Yield the blocks of each stretch of each arena."""
    return (stretch for arena in image.arenas for stretch in arena.stretches)


@pages
def test_pins(page: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that freeing a group gains exactly the pages of the free runs around it, and only if the whole group is
    freed.
    """
    compared = 0
    for place in range(4):
        image = sparse_image(rng, rng.choice(SHAPES), page)
        core = str(image.save(tmp_path / f"core{place}"))
        pins = ask("pins", core, "--allocator=glibc")["rows"]
        for stretch in stretches_of(image):
            own = {chunk.address + 16 for chunk in stretch}
            compared += sum(check_pin(image, stretch, pin) for pin in pins if pin["address"] in own)
    assert compared, "nothing is pinned"


def check_pin(image: Image, stretch: list[Chunk], pin: dict[str, Any]) -> bool:
    """Compare a group of pins with the model, unless freeing it reaches the top."""
    gone = {member["address"] - 16 for member in pin["members"]}
    if len(gone) < pin["blocks"] or joins_top(stretch, gone):
        return False
    before = released(stretch, set(), image.page)
    assert there(image, released(stretch, gone, image.page) - before) == pin["would_free"] >= image.page, pin
    without_one = gone - {min(gone)}
    assert there(image, released(stretch, without_one, image.page) - before) < pin["would_free"], pin
    return True


@pages
def test_holes(page: int, rng: random.Random, tmp_path: Path) -> None:
    """Check every run of free chunks, and its whole resident pages."""
    image = sparse_image(rng, rng.choice(SHAPES), page)
    answer = ask("holes", str(image.save(tmp_path / "core")), "--min=1", "--top=1000000")
    found = [(hole["address"], hole["size"], hole["resident"]) for hole in answer["rows"]]
    whole = partial(range_of_pages, page)
    assert found == [
        (address, size, there(image, whole(address - 16, address - 16 + size))) for address, size in image.holes()
    ]


def range_of_pages(page: int, start: int, end: int) -> range:
    """Return the numbers of the whole pages in [start, end)."""
    return range(-(-start // page), end // page)


@pages
def test_map(page: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that cells are whole pages, with the builder's resident bytes."""
    image = sparse_image(rng, rng.choice(SHAPES), page)
    core = str(image.save(tmp_path / "core"))
    for options in ((), ("--cell=5000",)):
        answer = ask("map", core, *options)
        assert answer["cell"] % page == 0 and (not options or answer["cell"] == -(-5000 // page) * page)
        cells = [cell for group in answer["rows"] for cell in group["cells"]]
        assert cells and all(cell["start"] % page == cell["end"] % page == 0 for cell in cells)
        for cell in rng.sample(cells, min(200, len(cells))):
            resident = sum(part["resident"] for part in cell["parts"])
            assert resident == image.memory.resident(cell["start"], cell["end"]), cell


@pages
@pytest.mark.parametrize("kind", mimalloc.STRIDES)
def test_mimalloc(kind: str, page: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that mimalloc's segments and pages have their usual sizes, whatever the kernel's page size is."""
    image = mimalloc.Image(kind, rng, page)
    image.memory.sparse = True
    core = Core(str(image.save(tmp_path / "core")))
    found = Mimalloc(core, Facts())
    assert found.damage == [] and {segment.start: segment.end for segment in found.segments} == image.segments
    assert core.pages is not None and core.machine.page == page
    for start, end in image.segments.items():
        at = rng.randrange(start, end)
        assert core.pages.count(start, at).resident == image.memory.resident(start, at)


def claiming(path: Path, size: int) -> str:
    """Change the core of an image with pages of 4 KiB so that it claims another page size."""
    data = path.read_bytes()
    before, after = (struct.pack("<QQ", AT_PAGESZ, page) for page in (4096, size))
    assert data.count(before) == 1
    path.write_bytes(data.replace(before, after))
    return str(path)


@pytest.mark.parametrize("size", [0, 1, 2048, 12345, 3 << 12, 1 << 17, 1 << 63, (1 << 64) - 1])
def test_no_such_pages(size: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that a core with an impossible page size is read with the usual one."""
    image = Image(rng.choice(GLIBCS), rng, rng.choice(SHAPES))
    with heap_of(claiming(image.save(tmp_path / "core"), size)) as heap:
        assert heap.target.machine.page == 4096
        compare(heap, image)


def test_pages_that_do_not_fit(rng: random.Random, tmp_path: Path) -> None:
    """Check that the page size is rejected as damage if the core's own segments are not multiples of it."""
    image = Image(rng.choice(GLIBCS), rng, "sbrk")
    core = claiming(image.save(tmp_path / "core"), 65536)
    answer = ask("arenas", core, status=1)
    assert [row["what"] for row in answer["damage"]] == ["pages"]
    assert {row["address"]: row for row in arena_rows(answer)} == {a.address: expected_arena(a) for a in image.arenas}
