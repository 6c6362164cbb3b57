"""Programs that use mimalloc, in each of its builds."""

from __future__ import annotations

import ctypes.util
from pathlib import Path

import pytest

from gdbheap.allocators.mimalloc.library import MimallocLibraries
from gdbheap.heap import Heap
from support import programs
from support.suites import libraries

BUILT = sorted((Path(__file__).parents[2] / "build" / "mimallocs").glob("libmimalloc-*.so"))
NAMES = ["the system's", *(path.stem.removeprefix("libmimalloc-") for path in BUILT), *libraries("mimalloc")]


def library(name: str) -> str:
    """Return the library of that name; skip the test if there is none."""
    if programs.ROOT_FOLDER:
        pytest.skip("packages installed here are not in the root folder")
    if name != NAMES[0]:
        return name if "/" in name else str(BUILT[NAMES.index(name) - 1])
    found = ctypes.util.find_library("mimalloc")
    if found is None:
        pytest.skip("no library of mimalloc here")
    return found


def newest() -> str:
    """Return the newest library here that does not record requested sizes."""
    plain = [name for name in NAMES if not name.endswith("secure") and "/" not in name]
    return library(plain[-1])


def check_blocks(heap: Heap, rows: list[tuple[int, int, int]]) -> int:
    """Check that every pointer is in a block in use that ends after the library's usable size or records the
    requested size; return how many blocks are in use."""
    found = heap.allocator(MimallocLibraries)
    tells = {root.padded for root in found.roots}
    for pointer, usable, requested in rows:
        block = found.find(pointer)
        assert block is not None and block.state == "used" and block.address <= pointer, (hex(pointer), usable, block)
        row = found.store.find(heap.target.space, pointer)
        assert row is not None and (row.asked is not None) in tells, (hex(pointer), row)
        end = block.end if row.asked is None else block.address + row.asked
        assert end - pointer == usable and usable >= requested, (hex(pointer), usable, requested, row)
    assert found.check().counts["pages"] > 0 and not [row for row in found.damage if not row.transient], found.damage
    return sum(count for _size, count in found.used_sizes())


def need_threads(name: str) -> None:
    """Skip the test of a release that fails with several threads."""
    if name.endswith(".so.3.0"):
        pytest.skip("with mimalloc 3.0.1, one in five such programs crashes (SIGSEGV) even without gdbheap")
