"""References between objects that several threads made, some of which have ended; and the same in a core."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.graphs import SPECIAL, check_chains, started, truth_of
from support.library import heap_of
from support.programs import KERNEL_CORE, RELEASE, SOURCES

from gdbheap.answers.unreachable import unreachable
from gdbheap.answers.why import Why, why

THREADS, FEW = 6, 20
LINES = (SOURCES / "workers.py").read_text().splitlines()
# The line before this one, counted from 1: the place where the threads wait.
WAITS = LINES.index("    return mine")


@pytest.mark.parametrize("build", [RELEASE, *SPECIAL])
def test_what_threads_made(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Check links of ended threads, objects only in a variable of a waiting one, and the cycles of both; a core
    gives the same."""
    with started(build, tmp_path, "workers", rng.getrandbits(32), THREADS, tmp_path / "truth") as target:
        # Some releases leak a module when they start.
        _found, before = looked(str(target.pid), [])
        target.go_on()
        truth = truth_of(tmp_path)
        found, lost = looked(str(target.pid), truth["links"] + truth["held"])
        for address in truth["held"]:
            edges = [step.edge for step in found[address].rows]
            place = f"in wait() at workers.py:{WAITS}"
            assert any("local variable mine" in edge and place in edge for edge in edges), edges
        assert lost - before == set(truth["planted"])
        check_chains(target, {"links": truth["links"]}, found, tmp_path)
        few = rng.sample(truth["links"], FEW) + truth["held"]
        there = looked(str(target.pid), few)
        assert looked(target.as_form(KERNEL_CORE), few) == there


def looked(target: str, addresses: list[int]) -> tuple[dict[int, Why], set[int]]:
    """Return {address: the answer of heap why} and the unreachable objects, from one stop."""
    with heap_of(target) as heap:
        rows = unreachable(heap, 1 << 30).rows
        lost = {address for row in rows if row.group == "cycles" and row.type is not None for address in row.addresses}
        return {address: why(heap, address) for address in addresses}, lost
