"""Blocks whose only holders are outside of the program's own aligned memory are not called lost."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from support.programs import GCORE, PROCESS, ask, build, running

BYTES = 40_000
# Blocks of malloc whose addresses are in a list.
INTEGERS = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
kept = [libc.malloc(40000) for _ in range(int(sys.argv[1]))]
for address in kept:
    ctypes.memset(address, 1, 40000)
sys.stdin.readline()
"""
HOLDERS = {
    "shared": "held-here at",
    "private": "held-here at",
    "packed": "'table' in hidden",
    "static": "'records' in hidden",
    "epoll": "the kernel (epoll)",
    "timer": "the kernel (timers)",
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_blocks_that_are_held(rng: random.Random, tmp_path: Path, kind: str) -> None:
    """Check that each holder of the blocks is named."""
    count = rng.randrange(300, 500)
    command = [str(build("hidden")), kind, str(count), str(tmp_path / "held-here")]
    with running(command, tmp_path) as target:
        found, held = ask("", str(target.pid)), ask("owners", str(target.pid))["rows"]
    assert "lost-blocks" not in [row["id"] for row in found["findings"]]
    (row,) = [row for row in held if HOLDERS[kind] in row["path"]]
    # A register or a word on the stack may hold the last one.
    assert row["bytes"] >= (count - 2) * BYTES


@pytest.mark.parametrize("form", [PROCESS, GCORE])
def test_blocks_that_are_lost(rng: random.Random, tmp_path: Path, form: str) -> None:
    """Check that blocks without a holder stay lost; for a core, memory inside the kernel is unknown."""
    count = rng.randrange(300, 500)
    with running([str(build("hidden")), "none", str(count), "-"], tmp_path) as target:
        found = ask("", target.as_form(form))["findings"]
    (row,) = [row for row in found if row["id"] == "lost-blocks"]
    assert row["bytes"] >= (count - 2) * BYTES
    assert ("the kernel keeps addresses" in row["text"]) == (form == GCORE)


def test_addresses_that_python_keeps_as_integers(rng: random.Random, tmp_path: Path) -> None:
    """Check addresses that ctypes returned: as a number, an address is spread over several words."""
    count = rng.randrange(300, 500)
    with running([sys.executable, "-c", INTEGERS, str(count)], tmp_path) as target:
        found = ask("", str(target.pid))["findings"]
    (row,) = [row for row in found if row["id"] == "lost-blocks"]
    assert "or integers of Python" in row["text"]
