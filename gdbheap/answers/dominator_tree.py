"""The upper part of the tree of dominators: which objects retain the most, and within which others."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.errors import GdbheapError
from gdbheap.graph.nodes import Node
from gdbheap.heap import Heap

__all__ = ["Dominated", "DominatorTree", "dominator_tree"]

MAX_OBJECTS, MAX_DEPTH = 500, 200


@dataclass(frozen=True)
class Dominated:
    """A node of the graph: in words what it is, the place of the one above it in the list, None at the top, what it
    retains, and how much of that is retained by none of those below it that are listed."""

    name: str
    above: int | None
    retained: int
    own: int


@dataclass(frozen=True)
class DominatorTree:
    """Each node after the one above it; ``others``: bytes that nodes retain which are not listed and are at the top."""

    nodes: list[Dominated]
    others: int


def dominator_tree(heap: Heap, most: int = MAX_OBJECTS) -> DominatorTree:
    """The objects that retain the most, and all above them. Raises NotAPython, or Unsupported."""
    references = heap.references
    graph = references.graph
    above: dict[int, int | None] = {}
    for row in graph.top_retained(most, set(), set()):
        upper: int | None = None
        # Of a long chain the ends are enough: what lies between is one step.
        for node in graph.dominator_chain(row.id, MAX_DEPTH // 2):
            above.setdefault(node, upper)
            upper = node
    nodes = list(above)
    retained = dict(zip(nodes, graph.retained(nodes)))
    below: dict[int | None, int] = {}
    for node, upper in above.items():
        below[upper] = below.get(upper, 0) + retained[node]
    places = {node: place for place, node in enumerate(nodes)}
    names = [_name(heap, node) for node in references.nodes(nodes)]
    rows = [
        Dominated(
            name,
            None if (upper := above[node]) is None else places[upper],
            retained[node],
            max(retained[node] - below.get(node, 0), 0),
        )
        for node, name in zip(nodes, names)
    ]
    return DominatorTree(rows, max(heap_bytes(heap) - below.get(None, 0), 0))


def heap_bytes(heap: Heap) -> int:
    """All blocks in use, with headers."""
    sizes = (row for allocator in heap.allocators for row in allocator.used_sizes())
    return sum(size * count for size, count in sizes)


def _name(heap: Heap, node: Node) -> str:
    if node.root is not None:
        return node.root.name
    if not node.type:
        return node.kind if node.kind != "unknown" else "block"
    try:
        if heap.is_python:
            return heap.objects.names.name(node.type)
        found = heap.known_kinds
        return "block" if found is None else found.name_of(node.type)
    except (GdbheapError, KeyError):
        return "block"
