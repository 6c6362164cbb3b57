"""Build the upper part of the dominator tree: the objects that retain the most, each below its dominator."""

from __future__ import annotations

from collections.abc import Iterator

from gdbheap.answers.accounting.paths import in_words
from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.answers.retained import top_objects
from gdbheap.answers.retained_blocks import MIN_BYTES_TOGETHER
from gdbheap.contents.python.names.packages import modules, namespaces
from gdbheap.contents.python.names.paths import ObjectPaths
from gdbheap.contents.python.objects.references import BY_OTHERS, PythonNodes
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError
from gdbheap.graph.nodes import Node
from gdbheap.heap import Heap

__all__ = ["DominatedNode", "DominatorTree", "dominator_tree"]

MAX_OBJECTS, MAX_DEPTH = 500, 200


@dataclass(frozen=True)
class DominatedNode:
    """A node of the dominator tree.

    ``above``: the index of its dominator in the list, or None at the top. ``own``: the bytes that it retains, without
    the bytes that the listed nodes below it retain.
    """

    name: str
    above: int | None
    retained: int
    own: int


@dataclass(frozen=True)
class DominatorTree:
    """The nodes of the tree; each node follows its dominator. ``others``: bytes in use that no top node retains."""

    nodes: list[DominatedNode]
    others: int


def dominator_tree(heap: Heap, most: int = MAX_OBJECTS) -> DominatorTree:
    """Return the upper part of the dominator tree of the target.

    It has the objects of the ``most`` largest rows of ``heap retained``, and the modules and libraries that retain as
    much. The dominators of all these are added. Each row stands for the innermost node that retains about the same
    bytes. Raises NotAPython or Unsupported."""
    references = heap.references
    graph = references.graph
    above: dict[int, int | None] = {}
    for number in _largest(heap, most):
        upper: int | None = None
        # Of a long chain, only both ends are kept; the nodes between them are skipped.
        for node in graph.dominator_chain(number, MAX_DEPTH // 2):
            above.setdefault(node, upper)
            upper = node
    nodes = list(above)
    retained = dict(zip(nodes, graph.retained(nodes)))
    below: dict[int | None, int] = {}
    for node, upper in above.items():
        below[upper] = below.get(upper, 0) + retained[node]
    places = {node: place for place, node in enumerate(nodes)}
    known = dict(_module_names(heap))
    names = [known.get(node.id) or _name(heap, node, above[node.id]) for node in references.nodes(nodes)]
    rows = [
        DominatedNode(
            name,
            None if (upper := above[node]) is None else places[upper],
            retained[node],
            max(retained[node] - below.get(node, 0), 0),
        )
        for node, name in zip(nodes, names)
    ]
    return DominatorTree(rows, max(heap_bytes(heap) - below.get(None, 0), 0))


def heap_bytes(heap: Heap) -> int:
    """Return the bytes of all blocks in use, headers included."""
    sizes = (row for allocator in heap.allocators for row in allocator.used_sizes())
    return sum(size * count for size, count in sizes)


def _largest(heap: Heap, most: int) -> list[int]:
    """Return the nodes of the first ``most`` rows, and of modules and libraries that retain enough bytes for such a
    row.

    A row is represented by the innermost node that retains about the same bytes.
    """
    graph = heap.references.graph
    rows = top_objects(heap, most)
    ends = graph.innermost_equal([row.id for row in rows])
    references = heap.references
    if not isinstance(references, PythonNodes):
        return ends
    others = [names.id for _module, names in namespaces(references)]
    others += [number for number, root in enumerate(references.roots, references.first_root) if root.phase == BY_OTHERS]
    least = rows[-1].bytes if len(rows) >= most else MIN_BYTES_TOGETHER
    return [*ends, *(number for number, size in zip(others, graph.retained(others)) if size >= least)]


def _module_names(heap: Heap) -> Iterator[tuple[int, str]]:
    """Yield (number of the node, name) for each module and for its ``__dict__``."""
    references = heap.references
    for module, names, name in modules(references) if isinstance(references, PythonNodes) else ():
        yield module.id, f"module {name}"
        yield names.id, f"module {name}.__dict__"


def _name(heap: Heap, node: Node, dominator: int | None) -> str:
    """Return the name of a node. For a root, it is the root's name. For any other node, it is the type; for an object,
    the edge from its holder follows the type.

    If several holders share the object, so that its holder does not dominate it, the whole path follows the type.
    """
    if node.root is not None:
        return node.root.name
    if not node.type:
        return node.kind if node.kind != "unknown" else "block"
    paths = heap.paths
    try:
        name = paths.kind_name(node.type)
        chain = heap.references.graph.chain(node.id) if isinstance(paths, ObjectPaths) else []
        path = paths.path(chain)
        if not path.steps:
            return name
        is_shared = dominator not in chain[-2:]
        edge = source_path(path.expression or in_words(path)) if is_shared else path.steps[-1].edge
        return f"{name} {edge}".strip()
    except (GdbheapError, KeyError):
        return "block"
