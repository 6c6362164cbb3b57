"""Programs that use jemalloc, in each of its builds."""

from __future__ import annotations

import ctypes.util
from collections import Counter
from pathlib import Path

import pytest

from gdbheap.allocators.jemalloc.allocator import JemallocLibraries
from gdbheap.heap import Heap
from support import programs
from support.programs import Running
from support.suites import libraries

BUILT = sorted((Path(__file__).parents[2] / "build" / "jemallocs").glob("libjemalloc-*.so"))
NAMES = ["the system's", *(path.stem.removeprefix("libjemalloc-") for path in BUILT), *libraries("jemalloc")]
# Blocks that are not in the program's table: a vector for thread-local data of each thread, and some others.
BESIDE, OF_A_THREAD = 4, 3
Stats = dict[str, Counter[tuple[int, int]]]


def library(name: str) -> str:
    """Return the library of that name; skip the test if there is none."""
    if programs.ROOT_FOLDER:
        pytest.skip("packages installed here are not in the root folder")
    if name != NAMES[0]:
        return name if "/" in name else str(BUILT[NAMES.index(name) - 1])
    found = ctypes.util.find_library("jemalloc")
    if found is None:
        pytest.skip("no library of jemalloc here")
    return found


def stats(target: Running, folder: Path) -> Stats:
    """Return jemalloc's current counts by (arena, size) or (arena, 0), and (-1, 0) for all arenas together; zeros if
    it was built without statistics."""
    target.go_on("stats")
    found: Stats = {}
    for line in (folder / "table.stats").read_text().splitlines():
        name, *place, value = line.split()
        arena, size = ([int(number) for number in place] + [-1, 0][len(place) :])[:2]
        found.setdefault(name, Counter())[arena, size] += int(value)
    return found


def check_held(heap: Heap, rows: list[tuple[int, int, int]]) -> int:
    """Check that a block in use begins at every pointer, with the bytes that the library reports; return how many
    blocks are in use."""
    found = heap.allocator(JemallocLibraries)
    for pointer, usable, _requested in rows:
        block = found.find(pointer)
        assert block is not None and (block.address, block.size, block.state) == (pointer, usable, "used"), (
            hex(pointer), usable, block,
        )  # fmt: skip
    assert found.check().counts["slabs"] > 0
    return sum(count for _size, count in found.used_sizes())


def newest() -> str:
    """Return the system's library, or the newest that was built."""
    return library(NAMES[0] if ctypes.util.find_library("jemalloc") else NAMES[-1])
