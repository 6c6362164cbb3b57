"""The graph of a C program's blocks by brute force: reachable blocks, and those that a block retains, found by
leaving it out.

Slow and plain, without any code of gdbheap.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Blocks:
    """Blocks by their addresses.

    ``sizes``: the bytes of their chunks; ``edges``: the blocks to which words of one lead, ``to_start``: only by their
    start addresses; ``roots``: the blocks that static data lead to.
    """

    sizes: dict[int, int] = field(default_factory=dict)
    roots: set[int] = field(default_factory=set)
    edges: dict[int, set[int]] = field(default_factory=dict)
    to_start: dict[int, set[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Blocks:
        """Return the graph that tests/programs/random_c_graph.c has written."""
        words = iter(struct.unpack(f"<{path.stat().st_size // 8}Q", path.read_bytes()))
        found, addresses = cls(), []
        for _ in range(next(words)):
            address = ~next(words) & (1 << 64) - 1
            addresses.append(address)
            found.sizes[address] = next(words)
            found.edges[address], found.to_start[address] = set(), set()
            if next(words):
                found.roots.add(address)
        for _ in range(next(words)):
            source, _place, target, inside = (next(words) for _ in range(4))
            found.edges[addresses[source]].add(addresses[target])
            if inside == 0:
                found.to_start[addresses[source]].add(addresses[target])
        return found

    def reached(self, without: int | None = None) -> set[int]:
        """Return the blocks that the roots reach."""
        return set(self.distances(self.edges, without))

    def certain(self) -> set[int]:
        """Return the blocks that are reachable only by words with start addresses."""
        return set(self.distances(self.to_start))

    def distances(self, edges: dict[int, set[int]], without: int | None = None) -> dict[int, int]:
        """Return {block: the fewest steps from a root}; 0 steps for a root itself."""
        found = {root: 0 for root in self.roots if root != without}
        left = deque(found)
        while left:
            source = left.popleft()
            for target in edges[source]:
                if target != without and target not in found:
                    found[target] = found[source] + 1
                    left.append(target)
        return found

    def kept_by(self, block: int) -> set[int]:
        """Return the blocks that are unreachable without a block, including itself."""
        return self.reached() - self.reached(block)

    def dominator(self, block: int) -> int | None:
        """Return the nearest block without which this block is unreachable; None if there is none.

        That block is on every path to this one.
        """
        steps = self.distances(self.edges)
        at = block
        while steps[at] > 0:
            at = next(source for source in steps if steps[source] == steps[at] - 1 and at in self.edges[source])
            if block not in self.reached(at):
                return at
        return None

    def size(self, blocks: Iterable[int]) -> int:
        """Return the bytes of their chunks."""
        return sum(self.sizes[block] for block in blocks)
