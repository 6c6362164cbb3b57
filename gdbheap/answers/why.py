"""What keeps an object alive, from a root down?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gdbheap.errors import UsageError
from gdbheap.graph.nodes import Node
from gdbheap.graph.paths import STEPS_AT_EACH_END, Step
from gdbheap.heap import Heap

if TYPE_CHECKING:
    from gdbheap.answers.stacks import Made


@dataclass(frozen=True)
class Holder:
    """An object, what it is, and how many bytes would be free without it."""

    address: int
    type: str
    retained: int


@dataclass(frozen=True)
class Why:
    """The answer of ``heap why``.

    ``chain``: a shortest one from a root to the object, over known references where there are any, ``length`` steps
    long; of more than a few hundred steps the first and the last hundred. ``certain``: whether all of it is known.
    ``expression``: the chain as Python, or None. ``dominators``: the objects without any one of which it would be free,
    the outermost first, itself last; of many those at both ends. ``retained``: bytes that only it keeps. ``made``: the
    recorded call that gave its block, if that was looked for and has a stack.
    """

    address: int
    type: str
    chain: list[Step]
    length: int
    expression: str | None
    certain: bool
    dominators: list[Holder]
    retained: int
    made: Made | None = None


def why(heap: Heap, address: int) -> Why:
    """What keeps the object alive whose block holds ``address``. Raises UsageError without one, or
    Unsupported."""
    references = heap.references
    node = find_node(heap, address, "why")
    paths = heap.paths
    numbers = references.graph.chain(node.id)
    path = paths.path(numbers)
    certain = bool(numbers) and references.is_certain(node.id)
    above = references.nodes(references.graph.dominator_chain(node.id, 2 * STEPS_AT_EACH_END)) if numbers else []
    kept = [holder for holder in above if holder.kind != "buffer" and holder.root is None]
    sizes = references.graph.retained([holder.id for holder in kept])
    holders = [Holder(holder.address, paths.type_name(holder), size) for holder, size in zip(kept, sizes)]
    (own,) = references.graph.retained([node.id])
    return Why(node.address, paths.type_name(node), path.steps, path.length, path.expression, certain, holders, own)


def find_node(heap: Heap, address: int, noun: str) -> Node:
    """The used block, or the static type, at ``address``. Raises UsageError where there is none."""
    node = heap.references.find(address)
    if node is None:
        raise UsageError(f"heap {noun}: {address:#x} is in no used block that was walked: 'heap at' says more")
    return node
