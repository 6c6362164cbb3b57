"""A process stopped at any moment: eight threads are inside malloc and free, and no false damage is reported."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from support.library import heap_of, warnings_of
from support.programs import ask, c_program, running

from gdbheap.answers.check import check

STOPS = 50
ENDLESS, ONLY_THREADS = 1 << 60, 3
TUNABLES = {
    "as it is": "",
    "one arena": "glibc.malloc.arena_max=1",
    "no tcache, one arena": "glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0",
    "many mmapped chunks": "glibc.malloc.mmap_threshold=20000",
}


@pytest.mark.parametrize("name", TUNABLES)
def test_stops_at_random_instants(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the only damage at any stop is marked as caught inside malloc, and that the books nearly balance."""
    arguments = (8, rng.getrandbits(30), ENDLESS, 3000, 100_000, ONLY_THREADS, tmp_path / "table")
    with running(c_program("recorder", *arguments), tmp_path, {"GLIBC_TUNABLES": TUNABLES[name]}) as target:
        for _ in range(STOPS):
            time.sleep(rng.random() * 0.02)
            with heap_of(str(target.pid)) as heap:
                answer = check(heap)
                false = [damage for damage in heap.damage if not damage.transient]
                assert not false, f"{len(false)} of {len(heap.damage)}: {false[:5]}, {warnings_of(heap)}"
                assert answer.ok and answer.chunks


def test_abort_is_no_excuse(tmp_path: Path) -> None:
    """Check that a damaged size over which glibc aborts counts as damage, whatever other threads are doing."""
    with running(c_program("overflow", 3), tmp_path) as target:
        core = target.aborted_core()
        answer = ask("check", str(core), status=1)
    whats = [row["what"] for row in answer["damage"] if row["found"] == hex(0x4141414141414141)]
    assert whats == ["size of a chunk"] and answer["ok"] is False, answer["damage"]
