"""``heap pools`` against sys._debugmallocstats(), printed by the target just before it stops: equal in every figure."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
from programs import FORMS, KINDS, PROCESS, ask, c_program, gdbheap, python_program, running

CLASS_ROW = re.compile(r"^ *\d+ +(\d+) +(\d+) +(\d+) +(\d+)$", re.MULTILINE)
ARENAS = re.compile(r"^([\d,]+) arenas \* (\d+) bytes/arena", re.MULTILINE)
UNUSED = re.compile(r"^([\d,]+) unused pools \* (\d+) bytes", re.MULTILINE)


def told(text: str) -> dict[str, Any]:
    """Return the figures of sys._debugmallocstats() by the keys of ``heap pools``; {size: (pools, used, free)}."""
    arenas, unused = ARENAS.search(text), UNUSED.search(text)
    assert arenas and unused, text
    return {
        "arenas": int(arenas[1].replace(",", "")),
        "arena_size": int(arenas[2]),
        "free_pools": int(unused[1].replace(",", "")),
        "pool_size": int(unused[2]),
        "classes": {int(row[0]): tuple(map(int, row[1:])) for row in CLASS_ROW.findall(text)},
    }


def answered(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the same figures of the answer; a class without pools may have a row or none, as its figures are all 0."""
    rows = {row["size"]: (row["pools"], row["used"], row["free"]) for row in answer["classes"]}
    assert len(rows) == len(answer["classes"]), "a size class with two rows"
    plain = {key: answer[key] for key in ("arenas", "arena_size", "free_pools", "pool_size")}
    return {**plain, "classes": {size: row for size, row in rows.items() if any(row)}}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objects", [300, 20_000, 150_000])
def test_pools_equal_debugmallocstats(kind: str, form: str, objects: int, rng: random.Random, tmp_path: Path) -> None:
    """Arenas, free pools, and each size class's pools, used and free blocks, after random allocations and deletions."""
    with running(python_program(kind, "pools", rng.getrandbits(32), objects), tmp_path) as target:
        truth = told(target.stderr)
        answer = ask("pools", target.as_form(form))
    assert answered(answer) == truth
    assert answer["damage"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_pools_of_many_small_processes(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """More seeds, small processes: other sizes of the last arena, other pools empty, each time."""
    for _ in range(6):
        seed, objects = rng.getrandbits(32), rng.randrange(16, 60_000)
        with running(python_program(kind, "pools", seed, objects), tmp_path) as target:
            assert answered(ask("pools", str(target.pid))) == told(target.stderr), f"pools.py {seed} {objects}"


@pytest.mark.parametrize("noun", ["pools", "pyobjects"])
def test_a_program_without_python_says_so(noun: str, rng: random.Random, tmp_path: Path) -> None:
    """One line, exit status 5."""
    program = c_program("recorder", 1, rng.getrandbits(30), 100, 50, 5000, 0, tmp_path / "table")
    with running(program, tmp_path) as target:
        done = gdbheap(noun, target.as_form(PROCESS))
    assert (done.returncode, len(done.stderr.splitlines())) == (5, 1), done.stderr
    assert "Python" in done.stderr
