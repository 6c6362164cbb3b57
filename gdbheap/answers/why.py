"""Show what keeps an object alive, by the path from a root to the object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from gdbheap.answers.accounting.absent import absent_under
from gdbheap.answers.accounting.stale_holders import most_freed
from gdbheap.answers.accounting.traced import name_tables
from gdbheap.answers.accounting.unfinished import finishing, not_examined
from gdbheap.answers.by_root import RootShare
from gdbheap.answers.retained_blocks import is_whole
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.graph.nodes import Node, Nodes
from gdbheap.graph.paths import STEPS_AT_EACH_END, Step
from gdbheap.heap import Heap

if TYPE_CHECKING:
    from gdbheap.stacks import AllocatingCall

MAX_DOMINATORS = 2 * STEPS_AT_EACH_END
"""The number of dominators that are read at each end of a long chain."""


@dataclass(frozen=True)
class Dominator:
    """An object, its type, and how many bytes its removal would free."""

    address: int
    type: str
    retained: int


@dataclass(frozen=True)
class WhyStep(Step):
    """One step of the path from a root to the object. ``certain``: all references up to this step are in known
    fields."""

    certain: bool


@dataclass(frozen=True)
class Why:
    """The answer of ``heap why``: a shortest chain from a root to the object, and the object's dominators.

    The chain prefers references in known fields. A long list of dominators is cut in the middle; ``dominator_count``
    counts all dominators, including buffers in the part that was cut. If some references could not be read, the answer
    has only proven dominators and retained sizes. ``at_most``: the most bytes that the removal may free, if words that
    may be stale are not references; None if that is about ``retained``. ``named_variable``: the static or thread-local
    variable whose name was given, if it has more memory than the block retains; the block is its largest one.
    ``variable_bytes``: the bytes of all blocks of this variable.
    """

    address: int
    type: str
    rows: list[WhyStep]
    count: int
    expression: str | None
    certain: bool
    dominators: list[Dominator]
    dominator_count: int
    retained: int
    lacking: int
    made: AllocatingCall | None = None
    absent: int = 0
    at_least: bool = False
    at_most: int | None = None
    not_examined: int = 0
    next: list[str] = field(default_factory=list)
    named_variable: str | None = None
    variable_bytes: int = 0


def why(heap: Heap, address: int, share: RootShare | None = None) -> Why:
    """Return what keeps alive the object whose block contains ``address``.

    ``share``: the blocks of the variable for which the block was chosen, or None.
    Raises UsageError if no block contains ``address``, and Unsupported if the graph of references cannot be built.
    """
    references = heap.references
    node = find_node(heap, address, "why")
    paths = heap.paths
    name_tables(heap)
    numbers = references.graph.chain(node.id)
    path = paths.path(numbers)
    certain = bool(numbers) and references.is_certain(node.id)
    holders, count = dominators_of(heap, node) if numbers else ([], 0)
    (own,) = references.graph.retained([node.id])
    most = most_freed(references.graph, node.id, own) if numbers else None
    steps = [
        WhyStep(step.address, step.type, step.edge, certain or _is_certain(references, step.address))
        for step in path.steps
    ]
    found = steps, path.length, path.expression, certain, holders, count, own, heap.target.lacking
    absent = absent_under(heap, lambda number: number if number == node.id else None)[node.id]
    rest, more = not_examined(references), finishing(heap, references, "why", f"{address:#x}")
    told = Why(node.address, paths.type_name(node), *found, absent=absent, at_most=most)
    told = replace(told, at_least=references.graph.is_cut, not_examined=rest, next=more)
    if share is None or is_whole(own, share):
        return told
    return replace(told, named_variable=share.name, variable_bytes=share.bytes)


def _is_certain(references: Nodes, address: int) -> bool:
    """Return whether all references up to a step are in known fields. The first step, a root, is always certain."""
    number = references.graph.find(address)
    return number is None or references.is_certain(number)


def dominators_of(heap: Heap, node: Node) -> tuple[list[Dominator], int]:
    """Return the dominators of a node, and their number: the removal of any one of them would free the node.

    Roots and buffers are left out. A long list is cut in the middle, to the same number of objects at both ends.
    """
    graph, paths = heap.references.graph, heap.paths
    chain = graph.dominator_chain(node.id)
    if len(chain) <= 2 * MAX_DOMINATORS:
        kept = _named(heap, chain)
        count = len(kept)
    else:
        first, last = _named(heap, chain[:MAX_DOMINATORS]), _named(heap, chain[-MAX_DOMINATORS:])
        each = min(len(first), len(last))
        kept = [*first[:each], *last[len(last) - each :]]
        count = len(first) + len(last) + len(chain) - 2 * MAX_DOMINATORS
    sizes = graph.retained([holder.id for holder in kept])
    return [Dominator(holder.address, paths.type_name(holder), size) for holder, size in zip(kept, sizes)], count


def _named(heap: Heap, numbers: Sequence[int]) -> list[Node]:
    """Return the nodes that are neither roots nor buffers: buffers are freed with their owners."""
    return [node for node in heap.references.nodes(numbers) if node.kind != "buffer" and node.root is None]


def find_node(heap: Heap, address: int, noun: str) -> Node:
    """Return the block in use, or the static type, that contains ``address``. Raises UsageError if there is none."""
    node = heap.references.find(address)
    if node is None:
        raise UsageError(f"heap {noun}: {address:#x} is not in a block in use: 'heap at' shows what is there")
    return node
