"""``heap pyobjects`` for populations of known size, and ``heap at`` for every object that a process can reach."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support.closures import check_counts, reached_in_heaps, same
from support.library import heap_of
from support.populations import census, check, check_new_objects, difference, truth, values_bytes
from support.programs import FORMS, KINDS, python_program, running

from gdbheap.answers.at import at
from gdbheap.answers.pyobjects import TypeRow, pyobjects

pytestmark = pytest.mark.cases(2)


def population(kind: str, rng: random.Random, directory: Path, most: int, largest: int) -> Any:
    """Start population.py; its truth is ``directory``/truth."""
    arguments = (rng.getrandbits(32), most, largest, directory / "truth")
    return running(python_program(kind, "population", *arguments), directory)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("most", "largest"), [(40, 20_000), (3000, 20_000), (20_000, 20)])
def test_exactly_the_new_objects(kind: str, most: int, largest: int, rng: random.Random, tmp_path: Path) -> None:
    """Check every population between two stops, to the object and the byte, with its buffers; no other type changed."""
    with population(kind, rng, tmp_path, most, largest) as target:
        check_new_objects(target, tmp_path / "truth", "3.11")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_own_classes(kind: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the program's own classes have exactly its populations, in a process and in both kinds of core."""
    with population(kind, rng, tmp_path, 1000, 20_000) as target:
        before = census(str(target.pid))
        target.go_on()
        expected = {
            n: row for n, row in truth(target, tmp_path / "truth", values_bytes).items() if n.startswith("__main__.")
        }
        after = census(target.as_form(form))
    expected = {name: row for name, row in expected.items() if name.startswith("__main__.")}
    assert len(expected) == 12
    check({n: row for n, row in difference(before, after).items() if n in expected}, expected)


@pytest.mark.in_turn("form", 1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_reachable_object(kind: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check address and type of a random part of the objects that gc.get_objects() leads to; 0.1 % may be wrong."""
    program = python_program(kind, "closure", rng.getrandbits(32), 4000, tmp_path / "truth")
    with running(program, tmp_path) as target:
        reached = reached_in_heaps(target.pid, tmp_path / "truth")
        sample = rng.sample(sorted(reached), min(len(reached), 4000))
        with heap_of(target.as_form(form)) as heap:
            found = {address: at(heap, address).object for address in sample}
    wrong = [(hex(a), reached[a], found[a]) for a in sample if not same(found[a], a, reached[a])]
    assert len(wrong) <= len(sample) // 1000, wrong[:20]


@pytest.mark.parametrize("kind", KINDS)
def test_census_holds_at_least_what_is_reachable(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the census counts at least the reachable objects of each type; one in a thousand of all may be
    missing.
    """
    program = python_program(kind, "closure", rng.getrandbits(32), 4000, tmp_path / "truth")
    with running(program, tmp_path) as target:
        reached = reached_in_heaps(target.pid, tmp_path / "truth")
        check_counts(reached, census(str(target.pid)))


@pytest.mark.parametrize("kind", KINDS)
def test_many_blocks_without_a_graph(
    kind: str, rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the graph is not read if C code has almost no blocks: the rest is the same, and the sums agree."""
    with population(kind, rng, tmp_path, 20_000, 20) as target:
        target.go_on()
        with heap_of(str(target.pid)) as heap:
            whole = pyobjects(heap)
        monkeypatch.setattr("gdbheap.contents.python.content.MANY_BLOCKS", 0)
        monkeypatch.setattr("gdbheap.contents.python.content.LEAST_SHARE", 1)
        monkeypatch.setattr("gdbheap._native.draw_graph", None)
        with heap_of(str(target.pid)) as heap:
            found = pyobjects(heap)
    assert [(row.type, row.count, row.own, row.buffers) for row in found.rows] == [
        (row.type, row.count, row.own, row.buffers - row.reached) for row in sorted(whole.rows, key=fields_first)
    ]
    parts = [found.free_lists, found.interpreter, found.unclassified, found.other_chunks]
    assert found.all_used == whole.all_used and found.roots == [] and found.total.reached == 0
    assert found.all_used.bytes == found.total.bytes + sum(part.bytes for part in parts)


def fields_first(row: TypeRow) -> tuple[int, str]:
    """Return a row's place in the order, by its type without the buffers that no field names."""
    return -(row.bytes - row.reached + row.mapped), row.type
