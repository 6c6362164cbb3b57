"""Blocks that were freed twice or written after free, in a program with one thread that waits in pause(2).

No thread will finish such a change, so it is damage, with the address that the program knows. The tests cover the
allocators that may be preloaded, a process and its core.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import programs
from support.programs import KERNEL_CORE, PROCESS, Running, ask, c_program, running

NAMES = ("jemalloc", "tcmalloc_minimal", "mimalloc")
# In jemalloc a freed block contains no data of jemalloc that a program could overwrite.
CASES = [(name, how) for name in NAMES for how in ("twice", "written") if (name, how) != ("jemalloc", "written")]
WALKED = {"jemalloc": "slabs", "tcmalloc_minimal": "spans", "mimalloc": "page_count"}
# The allocators whose damage names the block. mimalloc names its page, whose structure lies elsewhere.
OF_BLOCKS = ("jemalloc", "tcmalloc_minimal")


def library(name: str) -> str:
    """Return the library with this name. Skip the test if it is missing."""
    found = None if programs.ROOT_FOLDER else ctypes.util.find_library(name)
    if found is None:
        pytest.skip(f"no lib{name} here")
    return found


@contextlib.contextmanager
def started(name: str, how: str, rng: random.Random, folder: Path) -> Iterator[tuple[Running, int]]:
    """Yield the program, and the address of the block."""
    file = folder / "block"
    command = c_program("freed_twice", rng.getrandbits(30), how, file)
    with running(command, folder, {"LD_PRELOAD": library(name)}) as target:
        (block,) = struct.unpack("<Q", file.read_bytes())
        yield target, block


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
@pytest.mark.parametrize(("name", "how"), CASES)
def test_damaged(name: str, how: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the damage is named and that no exception excuses it; a small heap is walked all the same."""
    with started(name, how, rng, tmp_path) as (target, block):
        answer = ask("check", target.as_form(form), status=1)
        assert not answer["ok"] and answer[WALKED[name]] > 0
        assert not [warning for warning in answer["warnings"] if "stopped inside" in warning]
        assert answer["damage"] and not any("caught inside" in row["what"] for row in answer["damage"])
        if name in OF_BLOCKS:
            assert block in [row["address"] for row in answer["damage"]], (hex(block), answer["damage"])


@pytest.mark.parametrize("name", NAMES)
def test_sound(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the same program without the fault has no damage."""
    with started(name, "sound", rng, tmp_path) as (target, _block):
        answer = ask("check", str(target.pid))
        assert answer["ok"] and not answer["damage"] and answer[WALKED[name]] > 0
