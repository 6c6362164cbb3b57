"""``heap why``: its expression, evaluated in the program, is the object at that address."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from support.graphs import BUILDS, THOROUGH, check_chains, explained, started, truth_of
from support.library import heap_of
from support.programs import KINDS, Running, python_program, running

from gdbheap.answers.retained import OBJECT, retained
from gdbheap.contents.python.names.edges import Edge, EdgeNames

pytestmark = pytest.mark.cases(3)

# Longer than every limit of a walk that is cut into parts.
DEEPEST, FEW = 1_000_000 if THOROUGH else 200_000, 3_000
SOME = 100 if THOROUGH else 20
# The two chains of a million: one of links and one of lists.
DEEP = ("links", "nested")


def check(target: Running, truth: dict[str, list[int]], folder: Path) -> None:
    """Ask for all paths at one stop, and evaluate them together."""
    found = explained(str(target.pid), {address for some in truth.values() for address in some})
    check_chains(target, truth, found, folder)


@pytest.mark.parametrize("build", BUILDS)
def test_expressions_lead_there(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Check random objects of each structure, in each release of CPython."""
    with started(build, tmp_path, "references", rng.getrandbits(32), FEW, SOME, tmp_path / "truth") as target:
        check(target, truth_of(tmp_path), tmp_path)


@pytest.mark.parametrize("build", BUILDS if THOROUGH else BUILDS[:1])
def test_deepest(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Check a hundred random objects of a linked list and of a nested one, each as deep as DEEPEST."""
    with started(build, tmp_path, "references", rng.getrandbits(32), DEEPEST, 100, tmp_path / "truth") as target:
        truth = truth_of(tmp_path)
        check(target, {name: truth[name] for name in DEEP}, tmp_path)


def test_an_edge_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that an edge is read once, however many paths share it."""
    read, counts = EdgeNames.edge, Counter[tuple[int, int, bool]]()

    def counted(edges: EdgeNames, holder: int, target: int, names: bool = False) -> Edge:
        counts[holder, target, names] += 1
        return read(edges, holder, target, names)

    monkeypatch.setattr(EdgeNames, "edge", counted)
    with running(python_program(KINDS[0], "secret_texts", "text", 50), tmp_path, {"TOKEN": "text"}) as target:
        with heap_of(str(target.pid)) as heap:
            assert len(retained(heap, OBJECT, 50).rows) == 50
    assert counts and max(counts.values()) == 1, counts.most_common(3)
