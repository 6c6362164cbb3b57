"""``heap pools`` against sys._debugmallocstats(), printed by the target just before it stops: equal in every figure."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.pool_figures import answered, told
from support.programs import FORMS, KINDS, PROCESS, ask, c_program, gdbheap, python_program, running

pytestmark = pytest.mark.cases(8)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objects", [300, 20_000, 150_000])
def test_pools_equal_debugmallocstats(kind: str, form: str, objects: int, rng: random.Random, tmp_path: Path) -> None:
    """Check arenas, free pools, and each size class's pools, used and free blocks, after random allocations and
    deletions."""
    with running(python_program(kind, "pools", rng.getrandbits(32), objects), tmp_path) as target:
        truth = told(target.stderr)
        answer = ask("pools", target.as_form(form))
    assert answered(answer) == truth
    assert answer["damage"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_pools_of_many_small_processes(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check more seeds with small processes: each has another size of the last arena, and other empty pools."""
    for _ in range(6):
        seed, objects = rng.getrandbits(32), rng.randrange(16, 60_000)
        with running(python_program(kind, "pools", seed, objects), tmp_path) as target:
            assert answered(ask("pools", str(target.pid))) == told(target.stderr), f"pools.py {seed} {objects}"


@pytest.mark.parametrize("noun", ["pools", "pyobjects"])
def test_a_program_without_python_says_so(noun: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a program without Python gives one line and exit status 5."""
    program = c_program("recorder", 1, rng.getrandbits(30), 100, 50, 5000, 0, tmp_path / "table")
    with running(program, tmp_path) as target:
        done = gdbheap(noun, target.as_form(PROCESS))
    assert (done.returncode, len(done.stderr.splitlines())) == (5, 1), done.stderr
    assert "Python" in done.stderr
