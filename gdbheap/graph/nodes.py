"""The meaning of the native graph's node numbers, for graphs of any kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

from gdbheap import _native
from gdbheap.dataclass import dataclass

EXACT, LIKELY, DOUBTFUL, STRAY = range(4)
MAX_KNOWN = 1 << 16


@dataclass(frozen=True)
class Root:
    """A variable, stack or other memory outside of the heaps that refers to blocks.

    ``pointers``: addresses that the root holds. ``ranges``: memory whose words may be addresses. ``phase``: roots of a
    lower phase are followed first; see native/core/src/graph/tree.rs."""

    name: str
    phase: int
    pointers: list[int] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)


class Node(NamedTuple):
    """A node of the graph. ``id``: its number. ``place``: block, static or root.

    ``kind``: object, idle (on a free list), buffer or unknown. ``address``: for an object its own address, otherwise
    the first byte of the block. ``block``: the first byte of the block. ``size``: the bytes of the block, header
    included. ``type``: the address of the type, or 0."""

    id: int
    place: str
    kind: str
    address: int
    block: int
    size: int
    type: int
    root: Root | None = None


class Nodes:
    """The nodes of one graph, and the ``roots`` from which the graph was built."""

    graph: _native.Graph
    roots: Sequence[Root]
    # An edge whose strength (EXACT to STRAY) is at most this number counts as a reference that the program uses.
    believed = EXACT
    # Whether objects count the references to them. If they do, a count above the number of references found proves a
    # lost reference.
    counts_references = False

    def __init__(self) -> None:
        self._known: dict[int, Node] = {}
        self._words: dict[tuple[int, int], int | None] = {}

    def find(self, address: int) -> Node | None:
        """Return the node that contains ``address``: a block or a static type. None if there is no such node."""
        number = self.graph.find(address)
        return None if number is None else self.node(number)

    def node(self, number: int) -> Node:
        return self.nodes([number])[0]

    def nodes(self, numbers: Sequence[int]) -> list[Node]:
        """Return the nodes with these numbers, in the order in which the numbers are given."""
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        known = self._known
        missing = [number for number in numbers if number not in known]
        if missing:
            known.update(zip(missing, self._read(missing)))
        return [known[number] for number in numbers]

    @property
    def first_root(self) -> int:
        """The number of the first root; the other roots have the numbers that follow."""
        return self.graph.nodes - len(self.roots)

    def owner_of(self, number: int) -> Node | None:
        """Return the object or root that owns a block; None if nothing does. An object owns its own block."""
        (owner,) = self.graph.owners_of([number])
        return None if owner >= self.graph.nodes else self.node(owner)

    def word_of_root(self, block: int) -> int | None:
        """Return the address of the word in a root's memory at which the chain to the block at ``block`` begins, or
        None."""
        number = self.graph.find(block)
        chain = [] if number is None else self.graph.chain(number)[:2]
        return self.word_to(*self.nodes(chain)) if len(chain) == 2 else None

    def word_to(self, root: Node, first: Node) -> int | None:
        """Return the address of the first word in a root's memory that points to the node ``first``, or None."""
        key = root.id, first.id
        if key not in self._words:
            low, high = first.block, first.block + max(first.size, 1)
            ranges = root.root.ranges if root.root is not None else []
            found = (_native.find_pointer(self.space, start, end, low, high) for start, end in ranges)
            self._words[key] = next((place for place in found if place is not None), None)
        return self._words[key]

    @property
    def space(self) -> _native.Space:
        """The memory of the target."""
        raise NotImplementedError

    def is_certain(self, number: int) -> bool:
        """Return whether a chain of proven references leads from a root to the node with this number."""
        raise NotImplementedError

    def _read(self, numbers: Sequence[int]) -> Iterator[Node]:
        raise NotImplementedError
