"""Retained sizes equal the bytes freed by leaving the object out, on random graphs; the referrers of an object are
its holders."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from support.graphs import BUILDS, started
from support.library import heap_of

from gdbheap.answers.refs import refs
from gdbheap.graph.nodes import Node
from gdbheap.heap import Heap

pytestmark = pytest.mark.cases(4)

SIZES, ASKED = (10, 100, 1000, 10_000), 100
Asked = list[tuple[int, list[int]]]


@pytest.mark.parametrize("build", BUILDS)
def test_retained_is_what_leaving_out_frees(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that an object dominates exactly the objects that are unreachable without it, and retains their bytes;
    its referrers hold it."""
    sizes = ",".join(map(str, SIZES))
    arguments = (rng.getrandbits(32), sizes, ASKED, tmp_path / "truth")
    with started(build, tmp_path, "random_graph", *arguments) as target, heap_of(str(target.pid)) as heap:
        truth: Asked = json.loads((tmp_path / "truth").read_text())
        check_retained(heap, truth)
        check_referrers(heap, rng.sample([one for one, _kept in truth], 20))


def check_retained(heap: Heap, truth: Asked) -> None:
    """Check the objects that each object dominates, and their bytes."""
    graph = heap.references.graph
    everything = {address for _one, kept in truth for address in kept} | {one for one, _kept in truth}
    numbers = {address: graph.find(address) or 0 for address in everything}
    above = {address: set(graph.dominator_chain(number)) for address, number in numbers.items()}
    bytes_of = {address: own_bytes(heap, number) for address, number in numbers.items()}
    for one, kept in truth:
        dominated = {address for address in everything if numbers[one] in above[address]}
        assert dominated == set(kept), hex(one)
        assert graph.retained([numbers[one]]) == [sum(bytes_of[address] for address in kept)], hex(one)


def own_bytes(heap: Heap, number: int) -> int:
    """Return the bytes of an object's block, of the buffers that only it owns, and of the keys of its dict."""
    references = heap.references
    targets = targets_of(heap, [number])
    buffers = [node for node in targets if node.kind == "buffer"]
    # A small dict of Python 2 has its entries in itself.
    held = targets + targets_of(heap, [buffer.id for buffer in buffers])
    keys = {node.id: node.size for node in held if heap.python.objects.names.name(node.type) == "complex"}
    return references.node(number).size + sum(buffer.size for buffer in buffers) + sum(keys.values())


def targets_of(heap: Heap, numbers: list[int]) -> list[Node]:
    """Return the nodes to which some of these lead."""
    edges = {edge.target for number in numbers for edge in heap.references.graph.edges(number)}
    return heap.references.nodes(sorted(edges))


def check_referrers(heap: Heap, some: list[int]) -> None:
    """Check that each referrer of heap refs is named, and exact if the layout is known."""
    for one in some:
        found = refs(heap, one, None)
        assert found.count == len(found.rows) > 0
        assert all(row.certain for row in found.rows if row.type in ("list", "dict", "__main__.Slotted"))
        assert all(row.edge != "holds it" for row in found.rows if row.certain), found
