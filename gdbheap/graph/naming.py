"""Name the edges of a graph, starting at the roots.

Naming an edge reads the holder's memory, so the number of named edges is limited.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from gdbheap import _native
from gdbheap.graph.nodes import Node, Nodes
from gdbheap.targets.target import Target

__all__ = ["BUFFER", "INDEX", "INSIDE", "MOST_NAMED", "NAME", "EdgeName", "EdgeNames", "Holders", "name_edges"]

INDEX, NAME, INSIDE = range(3)
MOST_NAMED = 250_000
"""The most edges that get names: about ten seconds' work, done after the process runs again."""
MAX_WORDS_BYTES = 1 << 16
AT_ONCE = 10_000


class EdgeName(NamedTuple):
    """The name of an edge: the name or number that the holder has for its reference.

    ``kind``: INDEX for a position in a sequence (``text`` is a number); NAME for a name that the program uses; INSIDE
    for a reference that the program does not name, such as a word at an offset.
    """

    kind: int
    text: int | str


EdgeNames = dict[int, "list[EdgeName | None]"]
"""Maps the number of a node to the names of its edges, in the order of the edges. An edge without a name has None."""

BUFFER = EdgeName(INSIDE, "(buffer)")


class Holders(Protocol):
    """Reads the names of references in the holders of one kind of graph."""

    def of_root(self, root: Node, target: Node) -> EdgeName | None:
        """Return the name of a root's reference to ``target``, or None."""

    def held(self, holder: Node, is_namespace: bool) -> Iterable[tuple[int, EdgeName]]:
        """Return (address, name) of every object to which the block ``holder`` has a named reference.

        ``is_namespace``: the block is a dict whose keys are names of the program.
        """

    def is_dict(self, node: Node) -> bool:
        """Return whether the node is a dict. Dicts are named last, because only their holders show whether their keys
        are names."""

    def makes_namespace(self, name: EdgeName) -> bool:
        """Return whether an edge of that name points to a dict whose keys are names."""


def name_edges(target: Target, nodes: Nodes, holders: Holders | None, most: int = MOST_NAMED) -> tuple[EdgeNames, bool]:
    """Return the names of edges, beginning with the edges near the roots, and whether all edges were examined.

    Without ``holders`` the names are offsets. ``most``: the largest number of edges to name.
    """
    found = _EdgeNamer(target, nodes, holders)
    return found.names, found.run(most)


class _EdgeNamer:
    """Names edges breadth first.

    Dicts wait for all other nodes, because their holders show whether their keys are names. Buffers wait too: they are
    named together with the objects that own them. Words on stacks, the roots of the last phase, are followed after
    everything else. A stale word may point to a dict whose holder has not been reached yet."""

    def __init__(self, target: Target, nodes: Nodes, holders: Holders | None) -> None:
        self.space, self.nodes, self.graph, self.holders = target.space, nodes, nodes.graph, holders
        self.names: EdgeNames = {}
        self.count = 0
        self._word = target.machine.structure("P")
        self._seen: set[int] = set()
        last = max((root.phase for root in nodes.roots), default=0)
        self._queue: deque[int] = deque()
        self._late: deque[int] = deque()
        self._last: deque[int] = deque()
        for number, root in enumerate(nodes.roots, nodes.first_root):
            (self._last if root.phase == last else self._queue).append(number)
        self._namespaces: set[int] = set()
        # Buffers whose edges were named together with the object that owns them.
        self._owned: set[int] = set()

    def run(self, most: int) -> bool:
        for number in self._numbers():
            if self.count >= most:
                return False
            if number not in self.names and self.graph.edges(number):
                self._name(number)
        return True

    def _numbers(self) -> Iterator[int]:
        """Yield node numbers in the order in which nodes are named; unreachable nodes come last."""
        while waiting := self._queue or self._late or self._last:
            yield waiting.popleft()
        for start in range(0, self.graph.nodes, AT_ONCE):
            counts = array("I", self.graph.node_columns(start, AT_ONCE).edges)
            yield from (number for number, count in enumerate(counts, start) if count)

    def _name(self, number: int) -> None:
        node = self.nodes.node(number)
        for own, edges in self._with_buffers(node):
            targets = self._read(edges)
            self.names[own] = names = [None if one.kind != "buffer" else BUFFER for one in targets]
            self.count += len(names)
            if own == number:
                known = self._known(node)
            for place, target in enumerate(targets):
                names[place] = names[place] or known(target)
            if own == number:
                self._by_words(node, targets, names)
            elif any(names):
                self._owned.add(own)
            self._go_on(targets, names)

    def _with_buffers(self, node: Node) -> Iterator[tuple[int, list[_native.Edge]]]:
        """Yield (number of the node, edges from it) for a node and, if it is an object, for each of its buffers.

        The edges of a buffer of several objects, such as shared keys, are named by the first object that has names for
        them.
        """
        waiting, met = [node.id], {node.id}
        while waiting:
            own = waiting.pop(0)
            edges = self.graph.edges(own)
            yield own, edges
            names = self.names[own]
            for edge, name in zip(edges, names):
                if name == BUFFER and node.type and edge.target not in met and edge.target not in self._owned:
                    met.add(edge.target)
                    waiting.append(edge.target)

    def _read(self, edges: Sequence[_native.Edge]) -> list[Node]:
        numbers = [edge.target for edge in edges]
        parts = (numbers[at : at + AT_ONCE] for at in range(0, len(numbers), AT_ONCE))
        return [node for part in parts for node in self.nodes.nodes(part)]

    def _known(self, node: Node) -> Callable[[Node], EdgeName | None]:
        holders = self.holders
        if holders is None:
            return lambda _target: None
        if node.root is not None:
            return lambda target: holders.of_root(node, target)
        if not node.type:
            return lambda _target: None
        named: dict[int, deque[EdgeName]] = {}
        for address, name in holders.held(node, node.id in self._namespaces):
            named.setdefault(address, deque()).append(name)

        def next_of(target: Node) -> EdgeName | None:
            """Return the next of several names for references to ``target``; None if it has no name. All further
            references get the last name.
            """
            left = named.get(target.address)
            if not left:
                return None
            return left.popleft() if len(left) > 1 else left[0]

        return next_of

    def _by_words(self, node: Node, targets: Sequence[Node], names: list[EdgeName | None]) -> None:
        """Name the edges that have no name yet by their offset in the holder.

        Several edges to one target get the offsets of their words in ascending order.
        """
        wanted: dict[int, deque[int]] = {}
        for place, name in enumerate(names):
            if name is None:
                wanted.setdefault(targets[place].id, deque()).append(place)
        if node.root is not None or not wanted or not node.size:
            return
        size = min(node.block + node.size - node.address, MAX_WORDS_BYTES)
        raw = self.space.read_available(node.address, size - size % self._word.size)
        for offset in range(0, len(raw) - self._word.size + 1, self._word.size):
            word = self._word.unpack_from(raw, offset)[0]
            places = wanted.get(found) if word and (found := self.graph.find(word)) is not None else None
            if places:
                names[places.popleft()] = EdgeName(INSIDE, f"+{offset}")

    def _go_on(self, targets: Sequence[Node], names: Sequence[EdgeName | None]) -> None:
        for target, name in zip(targets, names):
            if name is not None and self.holders is not None and self.holders.makes_namespace(name):
                self._namespaces.add(target.id)
            if target.id not in self._seen:
                self._seen.add(target.id)
                waits = name == BUFFER or self.holders is not None and self.holders.is_dict(target)
                (self._late if waits else self._queue).append(target.id)
