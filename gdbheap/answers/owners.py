"""Who keeps the large blocks?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers.ways import in_words
from gdbheap.heap import Heap
from gdbheap.python.paths import Paths
from gdbheap.python.references import Node


@dataclass(frozen=True)
class Held:
    """A used block: its first byte, its size with its header, what it is (an object's type, ``buffer`` or ``block``),
    the object that owns it or None, and how that is reached: ``path`` as Python or None, ``chain`` in words."""

    address: int
    size: int
    what: str
    owner: int | None
    type: str | None
    path: str | None
    chain: str


@dataclass(frozen=True)
class Owners:
    """The answer of ``heap owners``, largest first; ``count`` and ``bytes`` are over all that are large enough."""

    owners: list[Held]
    count: int
    bytes: int


def owners(heap: Heap, minimum: int, top: int | None) -> Owners:
    """Blocks of at least ``minimum`` bytes. Raises NotAPython or Unsupported."""
    references = heap.references
    found = references.graph.largest(minimum, top)
    paths = heap.paths
    nodes = references.nodes([row.id for row in found.rows])
    return Owners([_held(paths, node) for node in nodes], found.count, found.bytes)


def _held(paths: Paths, node: Node) -> Held:
    references = paths.references
    numbers = references.graph.chain(node.id)
    above = references.nodes([number for number in numbers[-8:] if number != node.id])
    owner = node if node.kind == "object" else next((one for one in reversed(above) if one.type), None)
    path = paths.path(numbers)
    what = paths.type_name(node) if node.kind == "object" else "buffer" if node.kind == "buffer" else "block"
    address, kind = (None, None) if owner is None else (owner.address, paths.type_name(owner))
    return Held(node.block, node.size, what, address, kind, path.expression, in_words(path))
