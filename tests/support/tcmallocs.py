"""Programs that use tcmalloc, in each of its builds."""

from __future__ import annotations

import ctypes.util
import os
from pathlib import Path

import pytest

from gdbheap.allocators.tcmalloc.allocator import (
    TcmallocLibraries,
)
from gdbheap.heap import Heap
from support import programs
from support.suites import libraries

BUILT = sorted(map(str, (Path(__file__).parents[2] / "build" / "tcmallocs").glob("libtcmalloc-*.so")))
NAMED = filter(None, os.environ.get("GDBHEAP_TCMALLOCS", "").split(":"))
NAMES = ["tcmalloc_minimal", "tcmalloc", *BUILT, *NAMED, *libraries("tcmalloc_minimal")]
# Blocks that are not in the program's table: a vector for thread-local data of each thread, and some others.
BESIDE, OF_A_THREAD = 8, 3


def library(name: str) -> str:
    """Return the library of that name; skip the test if there is none."""
    if programs.ROOT_FOLDER:
        pytest.skip("packages installed here are not in the root folder")
    found = name if "/" in name else ctypes.util.find_library(name)
    if found is None:
        pytest.skip(f"no lib{name} here")
    return found


def check_held(heap: Heap, rows: list[tuple[int, int, int]]) -> int:
    """Check that a block in use begins at every pointer, with the bytes that the library reports; return how many
    blocks are in use."""
    found = heap.allocator(TcmallocLibraries)
    for pointer, usable, _requested in rows:
        block = found.find(pointer)
        assert block is not None and (block.address, block.size, block.state) == (pointer, usable, "used"), (
            hex(pointer), usable, block,
        )  # fmt: skip
    assert found.check().counts["spans"] > 0
    return sum(count for _size, count in found.used_sizes())
