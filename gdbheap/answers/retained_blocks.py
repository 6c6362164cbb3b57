"""List what retains the most bytes in a program without Python: blocks, kinds of blocks, globals and threads."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from gdbheap._native import NodeBytes
from gdbheap.answers.accounting.paths import MAX_PATHS, in_words
from gdbheap.answers.by_root import RootShare, by_root
from gdbheap.answers.retained_rows import RetainedRow
from gdbheap.graph.nodes import Node
from gdbheap.graph.paths import Paths, group_name
from gdbheap.graph.roots import GLOBAL, THREAD, BlockRoot
from gdbheap.heap import Heap

__all__ = [
    "MIN_BYTES_TOGETHER",
    "blocks",
    "is_whole",
    "kinds",
    "retains_all",
    "root_name",
    "roots",
]

MIN_BYTES_TOGETHER = 64 << 10
"""The fewest bytes that a block, or a group of blocks together, must retain for a row of its own."""
# The most blocks that are compared with the variables that point to them, and the most other holders that are named.
MAX_BLOCKS, MAX_HOLDERS = 1000, 5
# A variable or block retains all of a variable's memory if it retains this percentage of it.
WHOLE_PERCENT = 95


def blocks(heap: Heap, top: int | None) -> tuple[list[RetainedRow], int]:
    """Return the rows of the blocks that retain the most, and of variables whose memory no single block retains.

    Also return the number of all such rows.
    """
    paths = heap.paths
    every = paths.references.graph.top_blocks(None, MIN_BYTES_TOGETHER)
    found = every[:top]
    nodes = paths.references.nodes([kept.id for kept in found])
    rows = [
        RetainedRow(node.address, paths.type_name(node), 1, node.size, kept.bytes, None, _chain(paths, node, place))
        for place, (node, kept) in enumerate(zip(nodes, found))
    ]
    variables = list(_variables(heap, every[:MAX_BLOCKS]))
    return [*rows, *variables], len(every) + len(variables)


def _chain(paths: Paths, node: Node, place: int) -> str | None:
    return in_words(paths.path(paths.references.graph.chain(node.id))) if place < MAX_PATHS else None


def _variables(heap: Heap, found: Sequence[NodeBytes]) -> Iterator[RetainedRow]:
    """Yield a row for each variable if no block in ``found`` retains half of the variable's memory.

    The head of a list is such a variable if it points to both ends: without one of the pointers, the other still
    reaches every block.
    """
    graph = heap.references.graph
    most: Counter[int] = Counter()
    for kept in found:
        for number in {kept.id, *graph.dominator_chain(kept.id, 1)[:1]}:
            most[number] = max(most[number], kept.bytes)
    for share in by_root(heap, 0):
        largest = max((most[number] for number in share.nodes), default=0)
        if share.kind in (GLOBAL, THREAD) and share.bytes >= MIN_BYTES_TOGETHER and 2 * largest < share.bytes:
            yield _variable(heap, share)


def _variable(heap: Heap, share: RootShare) -> RetainedRow:
    graph, first = heap.references.graph, heap.references.first_root
    held = graph.also_held(set(share.nodes), MAX_HOLDERS)
    if is_whole(held.retained, share):
        return RetainedRow(None, share.kind, 1, 0, held.retained, None, share.name, absent=share.absent)
    chains = [graph.chain(other.id) for other in held.others]
    above = (heap.references.node(chain[0]).root for chain in chains if chain and chain[0] >= first)
    names = dict.fromkeys(root.name for root in above if root is not None)
    others = [name for name in names if not share.name.startswith(name)]
    return RetainedRow(
        None, share.kind, 1, 0, held.retained, None, share.name, others, absent=share.absent, at_most=share.bytes
    )


def is_whole(retained: int, share: RootShare) -> bool:
    """Return whether ``retained`` bytes are (almost) all bytes that count for a variable."""
    return 100 * retained >= WHOLE_PERCENT * share.bytes


def retains_all(heap: Heap, share: RootShare) -> bool:
    """Return whether a variable retains (almost) all blocks that count for it."""
    return is_whole(heap.references.graph.also_held(set(share.nodes), 0).retained, share)


def kinds(paths: Paths) -> list[RetainedRow]:
    """Return a row for each kind of blocks, with the bytes that all blocks of the kind retain together."""
    return [
        RetainedRow(None, group_name(paths, row.group), row.group.count, row.group.bytes, row.retained)
        for row in paths.references.graph.retained_by_group(None)
    ]


def roots(paths: Paths, kind: str) -> list[RetainedRow]:
    """Return a row for each global or each thread, as ``kind`` says, with the bytes that its roots retain together."""
    references = paths.references
    sets: dict[str, list[int]] = defaultdict(list)
    for number, root in enumerate(references.roots, references.first_root):
        if isinstance(root, BlockRoot) and root.kind == kind:
            sets[root_name(references.node(number), kind) or root.name].append(number)
    # Nothing points to a root. Therefore a name with only one root retains the same bytes as this root.
    single = {name: numbers[0] for name, numbers in sets.items() if len(numbers) == 1}
    sizes = dict(zip(single, references.graph.retained(list(single.values()))))
    several = {name: numbers for name, numbers in sets.items() if len(numbers) > 1}
    sizes |= dict(zip(several, references.graph.retained_together(list(several.values()))))
    return [RetainedRow(None, name, 1, 0, size) for name, size in sizes.items() if size]


def root_name(node: Node, kind: str) -> str | None:
    """Return the name of the row to which a root of this kind belongs; None if the node is not such a root."""
    root = node.root
    if not isinstance(root, BlockRoot) or root.kind != kind:
        return None
    return root.name if kind == GLOBAL else root.owner or root.name
