"""List what refers to an object."""

from __future__ import annotations

from dataclasses import field

from gdbheap.answers.why import Dominator, dominators_of, find_node
from gdbheap.contents.python.names.edges import is_namespace
from gdbheap.dataclass import dataclass
from gdbheap.graph.nodes import Node, Nodes
from gdbheap.graph.paths import Paths
from gdbheap.heap import Heap


@dataclass(frozen=True)
class Referrer:
    """An object, a frame or memory that refers to the object. ``certain``: the reference is in a known field."""

    address: int
    type: str
    edge: str
    certain: bool


@dataclass(frozen=True)
class Refs:
    """The answer of ``heap refs``. ``count`` is the number of all referrers, even if rows were cut."""

    address: int
    type: str
    rows: list[Referrer]
    count: int
    expression: str | None = None
    dominators: list[Dominator] = field(default_factory=list)


def refs(heap: Heap, address: int, top: int | None) -> Refs:
    """Return what refers to the object whose block contains ``address``.

    Raises UsageError if no block contains ``address``, and Unsupported if the graph of references cannot be built.
    """
    references = heap.references
    node = find_node(heap, address, "refs")
    found = holders_of(references, node)
    paths = heap.paths
    above = {} if heap.disclosure.contents else _above(paths, [holder for holder, _exact in found[:top]])
    shown = [_referrer(paths, holder, node, exact, above.get(holder.id, "")) for holder, exact in found[:top]]
    chain = references.graph.chain(node.id)
    dominators = dominators_of(heap, node)[0] if chain else []
    return Refs(node.address, paths.type_name(node), shown, len(found), paths.path(chain).expression, dominators)


def holders_of(references: Nodes, node: Node) -> list[tuple[Node, bool]]:
    """Return (node, whether the reference is exact) of everything that refers to a node; exact references come first.

    A buffer that refers to the node is replaced by the buffer's owners.
    """
    found: dict[int, bool] = {}
    sources = _sources(references, {node.id})
    nodes = {holder.id: holder for holder in references.nodes(list(sources))}
    buffers = {number for number, holder in nodes.items() if holder.kind == "buffer"}
    for number, exact in sources.items():
        if number not in buffers:
            found[number] = found.get(number, False) or exact
    owners = _sources(references, buffers) if buffers else {}
    for number, exact in owners.items():
        found[number] = found.get(number, False) or exact
    rows = references.nodes(list(found))
    return sorted(((holder, found[holder.id]) for holder in rows), key=lambda row: (not row[1], row[0].id))


def _sources(references: Nodes, targets: set[int]) -> dict[int, bool]:
    """Return the nodes that refer to any of ``targets``, and whether at least one reference of each node is exact."""
    found: dict[int, bool] = {}
    for row in references.graph.referrers(targets):
        found[row.source] = found.get(row.source, False) or row.strength <= references.believed
    return found


def _above(paths: Paths, holders: list[Node]) -> dict[int, str]:
    """Return the edge to each holder that is a dict of names (an instance's or a module's), by the number of the dict's
    node."""
    dicts = {holder.id: holder for holder in holders if holder.type and paths.type_name(holder) == "dict"}
    rows = paths.references.graph.referrers(set(dicts))
    sources = paths.references.nodes([row.source for row in rows])
    edges = [(row.target, paths.edge(source, dicts[row.target]).text) for source, row in zip(sources, rows)]
    return {target: text for target, text in edges if is_namespace(text)}


def _referrer(paths: Paths, holder: Node, node: Node, exact: bool, above: str) -> Referrer:
    return Referrer(holder.address, paths.type_name(holder), paths.edge(holder, node, above).text.strip(), exact)
