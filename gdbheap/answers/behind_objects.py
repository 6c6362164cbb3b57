"""Credit blocks of unknown contents to the objects that hold them, such as OpenSSL's blocks to an SSLContext."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from gdbheap.dataclass import dataclass
from gdbheap.graph.paths import STRUCTURE, AlikeBlocks, Paths

__all__ = ["Credit", "Share", "credited"]

# About SAMPLES of all blocks are read. The type of the objects that hold a label's blocks is determined from those of
# its blocks that are read, if there are at least MIN_SAMPLES of them.
SAMPLES, MIN_SAMPLES = 500, 8
# The most nodes that are read of a chain: the nodes nearest to the block. A linked list in C may have a million blocks.
LAST = 1 << 10
NOBODY = (1 << 32) - 1
UNKNOWN, OBJECT = "unknown", "object"


class Share(Protocol):
    """A group of blocks that are counted under one label."""

    @property
    def label(self) -> int: ...
    @property
    def group(self) -> AlikeBlocks: ...


@dataclass(frozen=True)
class Credit:
    """All blocks that objects of one type alone keep alive, counted under one label.

    A ``Credit`` is both a ``Share`` and its own ``AlikeBlocks``: it has the fields of both.
    """

    label: int
    type_address: int
    count: int
    bytes: int
    kind: str = OBJECT
    size: int = 0

    @property
    def group(self) -> AlikeBlocks:
        """This record itself, which has the fields of an ``AlikeBlocks``."""
        return self


def credited(paths: Paths, seeds: Mapping[int, int], shares: Sequence[Share]) -> list[Share]:
    """Return the blocks in use by label. Blocks of unknown contents are credited to the objects that hold them.

    ``seeds``: the label of each node that has one, by the node's number. ``shares``: the groups of blocks that are
    reached from ``seeds``, each with its label. The blocks of a label are credited to objects on two conditions. The
    largest group of the label consists of blocks of C code. Most of these blocks are reached through objects of one
    type, and no other label has objects of that type.
    """
    graph = paths.references.graph
    found = _types(paths, seeds, _unknown(shares))
    counts = {
        (share.label, share.group.type_address): share.group.count for share in shares if share.group.kind == OBJECT
    }
    first = 1 + max(seeds.values(), default=0)
    behind: dict[int, tuple[int, int, int]] = {}
    deeper: dict[int, int] = {}
    for label, kind in found.items():
        objects = graph.objects_of(kind)
        if counts.get((label, kind)) == len(objects):
            number = first + len(behind)
            behind[number] = label, kind, len(objects)
            deeper |= dict.fromkeys(objects, number)
    if not behind:
        return list(shares)
    again = graph.shares(list({**deeper, **seeds}.items()), 0)
    sums = Counter[int]()
    for share in again:
        sums[share.label] += share.group.bytes
    credits = [Credit(label, kind, count, sums[number]) for number, (label, kind, count) in behind.items()]
    return [*(share for share in again if share.label not in behind), *credits]


def _unknown(shares: Sequence[Share]) -> set[int]:
    """Return the labels whose largest group is blocks of C code with unknown contents."""
    largest: dict[int, AlikeBlocks] = {}
    for share in shares:
        if share.label not in largest or share.group.bytes > largest[share.label].bytes:
            largest[share.label] = share.group
    return {label for label, group in largest.items() if _is_of_c(group)}


def _is_of_c(group: AlikeBlocks) -> bool:
    return group.kind == STRUCTURE or (group.kind == UNKNOWN and not group.type_address)


def _types(paths: Paths, seeds: Mapping[int, int], labels: set[int]) -> dict[int, int]:
    """Return, for each label, the type of the objects that reach most of its blocks of unknown contents."""
    graph = paths.references.graph
    numbers = range(0, graph.blocks_end, max(1, graph.blocks_end // SAMPLES)) if labels else ()
    found: dict[int, Counter[int]] = {label: Counter() for label in labels}
    for number, node in zip(numbers, graph.nodes_of(list(numbers))):
        if node.type_address or node.kind != UNKNOWN:
            continue
        behind = _behind_seed(paths, seeds, number)
        if behind and seeds[behind[0]] in found:
            found[seeds[behind[0]]][_last_type(paths, behind[1:])] += 1
    most = {label: counts.most_common(1)[0] for label, counts in found.items() if sum(counts.values()) >= MIN_SAMPLES}
    return {label: kind for label, (kind, count) in most.items() if kind and 2 * count > sum(found[label].values())}


def _behind_seed(paths: Paths, seeds: Mapping[int, int], number: int) -> list[int]:
    """Return the part of the chain to a block that begins at the last node with a label. The list is empty if no node
    has a label.

    Only a part of a long chain is read, such as a linked list in C. If no node of that part has a label, the chain to
    the block's owner is used."""
    graph = paths.references.graph
    chain = graph.chain(number, LAST)
    found = _from_seed(chain, seeds)
    if found or len(chain) < LAST:
        return found
    (owner,) = graph.owners_of([number])
    return [] if owner == NOBODY else _from_seed(graph.chain(owner, LAST), seeds)


def _from_seed(chain: list[int], seeds: Mapping[int, int]) -> list[int]:
    place = next((place for place in reversed(range(len(chain))) if chain[place] in seeds), len(chain))
    return chain[place:]


def _last_type(paths: Paths, chain: list[int]) -> int:
    """Return the address of the type of the last object on a chain; 0 if no node is an object."""
    nodes = paths.references.graph.nodes_of(chain)
    return next((node.type_address for node in reversed(nodes) if node.kind == OBJECT), 0)
