"""The edges of objects are what the collector visits: gc.get_referents() in the program."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from support.graphs import BUILDS, started
from support.library import heap_of
from support.programs import ask, interpreter_of_release, running, since

from gdbheap.graph.nodes import EXACT, LIKELY
from gdbheap.heap import Heap

MANY = 5000
# Types for which the collector visits all references.
WHOLE = ("list", "tuple", "cell", "function", "generator", "references.Link", "references.Slotted")
# A frame continued after the truth was written; for a cache, the collector also visits the contents of its links.
OTHERS = ("frame", "functools._lru_cache_wrapper")


@pytest.mark.parametrize("build", BUILDS)
def test_edges_are_what_the_collector_visits(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Check all references that the collector visits in thousands of objects; the plainest types have no others."""
    arguments = (rng.getrandbits(32), MANY, tmp_path / "truth")
    with started(build, tmp_path, "referents", *arguments) as target, heap_of(str(target.pid)) as heap:
        lines = [list(map(int, line.split())) for line in (tmp_path / "truth").read_text().splitlines()]
        find = heap.references.graph.find
        rows = {row[0]: {find(address) for address in row[1:]} - {None} for row in lines}
        numbers = {address: number for address in rows if (number := find(address)) is not None}
        nodes = dict(zip(numbers, heap.references.nodes(list(numbers.values()))))
        types = {address: heap.python.objects.names.name(node.type) for address, node in nodes.items()}
        assert len(types) > MANY * 9 // 10
        for address, name in types.items():
            likely, certain = referred(heap, numbers[address])
            assert name in OTHERS or rows[address] <= likely | certain, (hex(address), name)
            assert name not in WHOLE or certain <= rows[address], (hex(address), name)


EMPTIED = """
import collections, os
class Item:
    __slots__ = ()
queue = collections.deque(Item() for _ in range(1000))
while queue:
    queue.popleft()
items = [Item() for _ in range(1000)]
os.read(0, 1)
"""


@pytest.mark.parametrize("release", since("3.11"))
def test_emptied_blocks_of_deques_refer_to_nothing(release: str, tmp_path: Path) -> None:
    """Check that blocks that a deque emptied hold nothing, even if other objects now lie at the addresses of the former
    items.
    """
    with running([interpreter_of_release(release).executable, "-c", EMPTIED], tmp_path) as target:
        items = ask("pyobjects", str(target.pid), "--list", "--type=__main__.Item", "--top=all")["rows"]
        with heap_of(str(target.pid)) as heap:
            graph = heap.references.graph
            numbers = {number for item in items if (number := graph.find(item["address"])) is not None}
            edges = [edge for edge in graph.referrers(numbers) if edge.strength in (EXACT, LIKELY)]
            holders = Counter(graph.node(edge.source).address for edge in edges)
    ((_items, certain), *others) = holders.most_common()
    # A word that is left in a block of the interpreter may be an item's address by chance. Each block has 64 items.
    assert len(numbers) == certain == 1000 and sum(count for _address, count in others) < 10


def referred(heap: Heap, number: int) -> tuple[set[int], set[int]]:
    """Return the nodes to which an object, or its buffer, leads: possibly, and certainly."""
    graph = heap.references.graph
    found: tuple[set[int], set[int]] = (set(), set())
    seen, left = {number}, [number]
    while left:
        for edge in graph.edges(left.pop()):
            if graph.node(edge.target).kind != "buffer":
                found[edge.strength == EXACT].add(edge.target)
            elif edge.target not in seen:
                seen.add(edge.target)
                left.append(edge.target)
    return found
