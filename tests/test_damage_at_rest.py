"""Blocks that were freed twice, or written to after they were freed, in a program with one thread that waits in
pause(2): nobody will finish that, so it is damage, with the address that the program knows. By the allocators that may
be preloaded; in a process, and in a core of it."""

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
# In jemalloc a freed block has nothing of jemalloc's own in it that a program could write over.
CASES = [(name, how) for name in NAMES for how in ("twice", "written") if (name, how) != ("jemalloc", "written")]
WALKED = {"jemalloc": "slabs", "tcmalloc_minimal": "spans", "mimalloc": "page_count"}
# Where mimalloc names its page, whose structure lies elsewhere.
OF_BLOCKS = ("jemalloc", "tcmalloc_minimal")


def library(name: str) -> str:
    """Return the library of that name; skip the test where there is none."""
    found = None if programs.ROOT_FOLDER else ctypes.util.find_library(name)
    if found is None:
        pytest.skip(f"no lib{name} here")
    return found


@contextlib.contextmanager
def started(name: str, how: str, rng: random.Random, folder: Path) -> Iterator[tuple[Running, int]]:
    """Yield the program, and the block."""
    file = folder / "block"
    command = c_program("freed_twice", rng.getrandbits(30), how, file)
    with running(command, folder, {"LD_PRELOAD": library(name)}) as target:
        (block,) = struct.unpack("<Q", file.read_bytes())
        yield target, block


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
@pytest.mark.parametrize(("name", "how"), CASES)
def test_damaged(name: str, how: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """What is wrong is named, and excused by nobody; a small heap is walked for all that."""
    with started(name, how, rng, tmp_path) as (target, block):
        answer = ask("check", target.as_form(form), status=1)
        assert not answer["ok"] and answer[WALKED[name]] > 0
        assert not [warning for warning in answer["warnings"] if "caught inside" in warning]
        assert answer["damage"] and not any("caught inside" in row["what"] for row in answer["damage"])
        if name in OF_BLOCKS:
            assert block in [row["address"] for row in answer["damage"]], (hex(block), answer["damage"])


@pytest.mark.parametrize("name", NAMES)
def test_sound(name: str, rng: random.Random, tmp_path: Path) -> None:
    """The same program without the fault."""
    with started(name, "sound", rng, tmp_path) as (target, _block):
        answer = ask("check", str(target.pid))
        assert answer["ok"] and not answer["damage"] and answer[WALKED[name]] > 0
