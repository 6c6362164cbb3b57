"""References where several threads made the objects, some of which have ended; and a core of that."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from graphs import SPECIAL, check_chains, explained, started, truth_of
from library import heap_of
from programs import KERNEL_CORE, RELEASE

from gdbheap.answers.unreachable import unreachable

THREADS, FEW = 6, 20


@pytest.mark.parametrize("build", [RELEASE, *SPECIAL])
def test_what_threads_made(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Links of threads that are gone, what a waiting one holds in a variable only, the cycles of both; a core says the
    same."""
    with started(build, tmp_path, "workers", rng.getrandbits(32), THREADS, tmp_path / "truth") as target:
        # Some releases leak a module when they start.
        before = lost(str(target.pid))
        target.go_on()
        truth = truth_of(tmp_path)
        found = explained(str(target.pid), truth["links"] + truth["held"])
        for address in truth["held"]:
            edges = [step.edge for step in found[address].chain]
            assert any("local variable mine" in edge and "in wait() at workers.py:" in edge for edge in edges), edges
        assert lost(str(target.pid)) - before == set(truth["planted"])
        check_chains(target, {"links": truth["links"]}, found, tmp_path)
        few = rng.sample(truth["links"], FEW) + truth["held"]
        found, rest = explained(str(target.pid), few), lost(str(target.pid))
        core = target.as_form(KERNEL_CORE)
        assert explained(core, few) == found and lost(core) == rest


def lost(target: str) -> set[int]:
    """Return the objects that nothing keeps alive."""
    with heap_of(target) as heap:
        rows = unreachable(heap, 1 << 30).rows
    return {address for row in rows if row.type is not None for address in row.addresses}
