"""References in objects of types in C have the names of their fields, checked against the program's own report."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.graphs import BUILDS, started
from support.installed import python_with
from support.library import heap_of
from support.programs import SOURCES, running

from gdbheap.heap import Heap


@pytest.mark.parametrize("build", BUILDS)
def test_fields_of_c_types_have_their_names(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Check each release, which declares its own structures."""
    with started(build, tmp_path, "struct_fields", tmp_path / "truth") as target, heap_of(str(target.pid)) as heap:
        named_as_told(heap, tmp_path / "truth", 12)


def test_a_view_has_its_array_as_base(tmp_path: Path) -> None:
    """Check numpy's arrays, which have no table of members."""
    command = [python_with("numpy"), "-I", str(SOURCES / "struct_fields.py"), str(tmp_path / "truth")]
    with running(command, tmp_path) as target, heap_of(str(target.pid)) as heap:
        assert ".base" in named_as_told(heap, tmp_path / "truth", 12)


def named_as_told(heap: Heap, truth: Path, least: int) -> set[str]:
    """Compare the edges with the program's report; return their names."""
    rows = [line.split() for line in truth.read_text().splitlines()]
    edges = heap.python.paths.edges
    found = {(name, edges.edge(int(holder), int(target)).text) for holder, target, name in rows}
    assert len(rows) >= least
    wrong = {(name, text) for name, text in found if not text.endswith(name)}
    assert not wrong, wrong
    return {name for name, _text in found}
