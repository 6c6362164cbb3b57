"""The graph of references of a target without Python.

Its nodes are blocks. An edge is a word in a block that contains the address of another block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from gdbheap import _native
from gdbheap.graph.linker_tables import linker_tables
from gdbheap.graph.nodes import LIKELY, Node, Nodes, Root
from gdbheap.graph.roots import BY_PADDING, BY_STATIC, tables
from gdbheap.graph.stdio_buffers import stdio_buffers
from gdbheap.targets.target import Target

__all__ = ["BlockReferences", "Kinds"]


class Kinds(Protocol):
    """The kinds of blocks that were recognised by their contents."""

    @property
    def native(self) -> _native.Structures:
        """The kinds of blocks in the form that native functions take."""

    def name_of(self, kind: int) -> str:
        """Return the name of the kind with the number ``kind``."""

    def name_at(self, address: int) -> str | None:
        """Return the name of the kind of the block in use that holds an address, or None if unknown."""


class BlockReferences(Nodes):
    """The graph of the blocks in ``stores``. ``structures``: the kinds of blocks; the ``type`` of a node is the number
    of its block's kind.
    """

    believed = LIKELY

    def __init__(
        self,
        target: Target,
        stores: Sequence[_native.BlockStore],
        roots: Sequence[Root],
        structures: Kinds | None = None,
        progress: Callable[[int, int], object] | None = None,
        is_partial: bool = False,
        hidden: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Build the graph.

        ``is_partial``: memory that may refer to blocks is missing. ``hidden``: words at unaligned addresses that point
        to blocks, ascending, each as (address of the word, address that the word holds).
        """
        super().__init__()
        self.target, self.roots, self.structures = target, roots, structures
        kinds = structures.native if structures is not None else None
        heaps = _native.Heaps(target.space, stores)
        linked, texts = linker_tables(target), stdio_buffers(target)
        self.graph = _native.draw_blocks(
            heaps, tables(target), roots, linked, kinds, progress, is_partial, hidden, texts
        )

    @property
    def space(self) -> _native.Space:
        return self.target.space

    def is_certain(self, number: int) -> bool:
        """Return whether a chain of pointers, each to the beginning of a block, leads from static data to the node with
        this number."""
        chain = self.graph.chain(number)
        first, last = self.graph.phases([chain[0], chain[-1]]) if chain else (BY_PADDING, BY_PADDING)
        return first == BY_STATIC and last < BY_PADDING

    def _read(self, numbers: Sequence[int]) -> Iterator[Node]:
        for number, row in zip(numbers, self.graph.nodes_of(numbers)):
            if row.place == "root":
                root = self.roots[row.address]
                at = root.ranges[0][0] if root.ranges else 0
                yield Node(number, row.place, row.kind, at, 0, 0, 0, root)
            else:
                yield Node(number, row.place, row.kind, row.address, row.address, row.size, row.type_address)
