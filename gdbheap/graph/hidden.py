"""Find words that point to blocks in two places that a graph of references leaves out: mapped files on a disk, and
unaligned addresses, as in packed structs.

Few words in these places are pointers. So they are searched only if blocks would otherwise count as lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gdbheap.graph.blocks import BlockReferences
from gdbheap.graph.mapped import written_files
from gdbheap.graph.nodes import Root
from gdbheap.graph.roots import file_root
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.target import Target

__all__ = ["with_hidden_words"]

# The search is made only if at least LEAST bytes of blocks would count as lost.
#
# A block to which a hidden word points may contain further hidden words, so the search is repeated up to ROUNDS times.
LEAST, ROUNDS = 4 << 20, 4
Draw = Callable[[Sequence[Root], Sequence[tuple[int, int]]], BlockReferences]


def with_hidden_words(target: Target, draw: Draw, roots: Sequence[Root], heaps: Ranges) -> BlockReferences:
    """Return the graph that the function ``draw`` builds from ``roots`` and from the hidden words, if there are any.

    ``heaps``: the ranges in which blocks lie.
    """
    files = [file_root(mapping, ranges) for mapping, ranges in written_files(target)]
    roots, found, hidden = list(roots), draw(roots, []), set[tuple[int, int]]()
    for _ in range(ROUNDS):
        outside = sorted(pair for root in roots for pair in root.ranges)
        places = found.graph.hidden_words(heaps, outside, sorted(pair for root in files for pair in root.ranges), LEAST)
        leading = [root for root in files if any(start <= at < end for start, end in root.ranges for at, _to in places)]
        odd = {(at, to) for at, to in places if at % target.machine.word}
        if not leading and odd <= hidden:
            break
        hidden |= odd
        roots, files = [*roots, *leading], [root for root in files if root not in leading]
        found = draw(roots, sorted(hidden))
    return found
