"""References: chains lead where they say, retained sizes are those of leaving the object out, garbage is what was
planted."""

from __future__ import annotations

import json
import random
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pytest
from library import heap_of
from programs import KINDS, RELEASES, Running, ask, python_program, release_program, running

from gdbheap.answers.refs import refs
from gdbheap.answers.unreachable import unreachable
from gdbheap.answers.why import Why, why
from gdbheap.heap import Heap
from gdbheap.objects.references import BY_REMAINS

MANY, SIZE = 1_000_000, 3_000
# A deque of Python 2 has blocks of another size: its items are reached, but not named.
UNNAMED = {"2.7": {"queue"}}
NO_EXPRESSION = {"local", "others"}


def evaluated(target: Running, expressions: list[str], folder: Path) -> list[int]:
    """Return what id() says, in the program, of the values of expressions."""
    asked = folder / "asked"
    asked.write_text(json.dumps(expressions))
    target.go_on(str(asked))
    found: list[int] = json.loads(Path(f"{asked}.answer").read_text())
    return found


def explained(target: Running, addresses: list[int]) -> dict[int, Why]:
    """Return {address: the answer of heap why}."""
    with heap_of(str(target.pid)) as heap:
        return {address: why(heap, address) for address in addresses}


def chains_are_true(command: list[str], folder: Path, without: AbstractSet[str] = frozenset()) -> None:
    """Assert that each object of each structure is the value of the expression that leads there."""
    with running(command, folder) as target:
        truth = json.loads((folder / "truth").read_text())
        for name in without:
            del truth[name]
        found = explained(target, [address for some in truth.values() for address in some])
        for name in NO_EXPRESSION:
            for address in truth.pop(name):
                edges = [step.edge for step in found[address].chain]
                assert any("local variable" in edge and "in hold() at references.py:" in edge for edge in edges), edges
        for name, some in truth.items():
            lost = [(hex(address), found[address].chain[-6:]) for address in some if not found[address].expression]
            assert not lost, (name, lost[:3])
            expressions = [str(found[address].expression) for address in some]
            wrong = [
                (expression, address)
                for expression, address, real in zip(expressions, some, evaluated(target, expressions, folder))
                if real != address
            ]
            assert not wrong, (name, wrong[:3])
            assert all(found[address].certain for address in some), name


@pytest.mark.parametrize("kind", KINDS)
def test_expressions_lead_there(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """A hundred random objects of each structure, lists and links a million deep among them."""
    chains_are_true(python_program(kind, "references", rng.getrandbits(32), MANY, tmp_path / "truth"), tmp_path)


@pytest.mark.parametrize("release", RELEASES)
def test_expressions_lead_there_in_every_release(release: str, rng: random.Random, tmp_path: Path) -> None:
    """The same in each release of CPython, with shorter chains."""
    command = release_program(release, "references", rng.getrandbits(32), SIZE, tmp_path / "truth")
    chains_are_true(command, tmp_path, UNNAMED.get(release, set()))


@pytest.mark.parametrize("count", [10, 100, 1000, 10_000])
@pytest.mark.parametrize("kind", KINDS)
def test_retained_is_what_leaving_out_frees(kind: str, count: int, rng: random.Random, tmp_path: Path) -> None:
    """On random graphs: an object dominates exactly what is not reached without it, and retains its bytes."""
    asked = min(count, 300)
    command = python_program(kind, "random_graph", rng.getrandbits(32), count, asked, tmp_path / "truth")
    with running(command, tmp_path) as target, heap_of(str(target.pid)) as heap:
        truth: list[tuple[int, list[int]]] = json.loads((tmp_path / "truth").read_text())
        graph = heap.references.graph
        everything = {address for _one, kept in truth for address in kept} | {one for one, _kept in truth}
        numbers = {address: heap.references.graph.find(address) for address in everything}
        above = {address: set(graph.dominator_chain(number or 0)) for address, number in numbers.items()}
        for one, kept in truth:
            dominated = {address for address in everything if numbers[one] in above[address]}
            assert dominated == set(kept), hex(one)
            expected = sum(own_bytes(heap, numbers[address] or 0) for address in kept)
            assert graph.retained([numbers[one] or 0]) == [expected], hex(one)


def own_bytes(heap: Heap, number: int) -> int:
    """Return the bytes of an object's block, of the buffers that only it owns, and of the keys of its dict."""
    references = heap.references
    node = references.node(number)
    others = references.nodes(sorted({target for target, _ in references.graph.edges(number)}))
    size = node.size + sum(other.size for other in others if other.kind == "buffer")
    leaves = [other for buffer in others if buffer.kind == "buffer" for other in targets_of(heap, buffer.id)]
    return size + sum(other.size for other in leaves if heap.objects.names.name(other.type) == "float")


def targets_of(heap: Heap, number: int) -> list[Any]:
    """Return the nodes to which a buffer leads."""
    return heap.references.nodes(sorted({target for target, _ in heap.references.graph.edges(number)}))


@pytest.mark.parametrize("kind", KINDS)
def test_what_nothing_keeps_alive(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """The planted cycles and the planted leaks to which no word leads, all of them and nothing else."""
    command = python_program(kind, "garbage", rng.getrandbits(32), tmp_path / "truth")
    with running(command, tmp_path) as target:
        text = (tmp_path / "truth").read_text()
        with heap_of(str(target.pid)) as heap:
            rows = unreachable(heap, 1 << 30).rows
            graph = heap.references.graph
            lost = {int(address) - 1 for address in text.splitlines()[1].split()}
            numbers = {address: graph.find(address) or 0 for address in lost}
            left_over = {address for address in lost if graph.phases([numbers[address]])[0] == BY_REMAINS}
        answer = ask("unreachable", str(target.pid))
    objects = {address for row in rows if row.type is not None for address in row.addresses}
    blocks = {address for row in rows if row.type is None for address in row.addresses}
    planted = set(map(int, text.splitlines()[0].split()))
    assert objects == planted, (len(objects - planted), len(planted - objects))
    # A word that is left over on a stack may still lead to one or two.
    assert blocks == lost - left_over and len(left_over) < 3
    assert answer["objects"]["count"] == len(planted)
    assert answer["blocks"]["count"] == len(lost - left_over)


@pytest.mark.parametrize("kind", KINDS)
def test_referrers_are_those_that_hold_it(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Who points to an object by the graph read forward is who points to it by ``heap refs``."""
    command = python_program(kind, "random_graph", rng.getrandbits(32), 1000, 50, tmp_path / "truth")
    with running(command, tmp_path) as target:
        truth: list[tuple[int, list[int]]] = json.loads((tmp_path / "truth").read_text())
        with heap_of(str(target.pid)) as heap:
            for one, _kept in truth[:20]:
                found = refs(heap, one, None)
                assert found.count == len(found.referrers) > 0
                assert all(row.exact for row in found.referrers if row.type in ("list", "dict", "__main__.Slotted"))
                assert all(row.edge != "holds it" for row in found.referrers if row.exact), found
